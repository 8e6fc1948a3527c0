//! AMD's programs for its own file formats, run on our files. What they print or write is compared word for word
//! with what our readers say; an exit code alone proves little.

/// What a program confirmed of one file, and how much of it.
pub type Confirmed = Vec<(&'static str, usize)>;

pub mod aiebu;
pub mod bootgen;
pub mod xrt_job;
pub mod xrt_program;
