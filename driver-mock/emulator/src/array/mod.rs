//! The array: tiles in columns and rows, driven register by register.
//!
//! [`Array`] owns all tiles. What is written to it, and what moves in it, is in a file each: registers, control packets,
//! transfers of DMA channels, switching of stream words, what cores see, and the schedule that lets all of them run.

mod causes;
mod clock;
mod control_packet;
mod cores;
mod dma;
mod dma_words;
mod error;
mod fifo;
mod groups;
mod host;
mod interleaving;
mod loader;
mod place;
mod registers;
mod report;
mod rules;
mod schedule;
mod stream;
mod switching;
mod tile;
mod tiles;
mod timeline;
mod timing;
mod transfer;
mod view;
mod waiting;

pub use clock::{Resource, Timing, Use};
pub use error::{ArrayError, DmaProblem};
pub use host::{HostMemory, NoHost};
pub use loader::{LoadError, Outcome};
pub use report::{Report, Waiter, What, Who};
pub use rules::{LeftTokens, LockValues, Rules};
pub use tiles::Array;
pub use timeline::{Interval, Occupation};
