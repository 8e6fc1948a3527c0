//! The devices that ggml gets: which ones were asked for, how they are opened and set up, what they are called, and what is left when
//! the process ends.

pub mod backend_device;
pub mod drivers;
pub mod requested;
pub mod setup;
pub mod statistics_file;
