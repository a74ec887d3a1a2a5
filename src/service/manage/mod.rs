//! Management: the settings of events, and campaigns.

pub mod campaign_view;
pub mod campaigns;
pub mod events;
pub mod packets;
pub mod records;
