//! What every layer above needs from the machine: time, tasks that somebody awaits, telemetry.

pub mod batches;
pub mod clock;
pub mod meters;
pub mod open_files;
pub mod random;
pub mod stop;
pub mod tasks;
pub mod telemetry;
