//! Management: the settings of events, and campaigns.

pub mod campaigns;
pub mod events;
pub mod packets;
pub mod records;
