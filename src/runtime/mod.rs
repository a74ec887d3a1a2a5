//! What every layer above needs from the machine: time, tasks that somebody awaits, telemetry.

pub mod clock;
pub mod meters;
pub mod random;
pub mod stop;
pub mod tasks;
pub mod telemetry;
