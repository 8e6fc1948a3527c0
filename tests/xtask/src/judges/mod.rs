//! AMD's programs for its own file formats, asked what they make of our files. What they print or write is compared word for word
//! with what our readers say; an exit code alone proves little.

pub mod aiebu;
pub mod bootgen;
pub mod xrt_job;
