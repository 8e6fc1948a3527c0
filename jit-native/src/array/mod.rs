//! Programs of the array: tiles, streams, buffer descriptors and locks as a PDI, and a dispatch as an instruction stream.
//!
//! One PDI serves many shapes. [`ArrayProgram`] says what stays: the programs of the cores, which tiles are connected, where
//! buffers and locks are. It becomes a PDI ([`Configured`]), after which every core waits for its go lock. [`Dispatch`] says
//! what one dispatch does with it: the parameters of the cores, what the DMA channels move, and where in the host's memory.
//! It becomes an instruction stream, which ends when nothing moves any more. So a PDI's bytes do not depend on shapes, and
//! kernels that share one do not reload the array.
//!
//! What mlir-aie calls an ObjectFifo is a stream between two [`Ring`]s ([`ArrayProgram::fifo`]). Its variants:
//!
//! | | |
//! |---|---|
//! | broadcast | a stream with several ends |
//! | split | a mem tile's receiving channel goes through several rings in turn ([`Dispatch::run`] with several [`Part`]s); each ring has a sending channel of its own |
//! | join | the reverse: several receiving channels, each with a ring, and one sending channel that goes through all of them |
//! | split by dispatches | one channel of a shim leads to several places, by the id of its packets ([`ArrayProgram::split`]) |
//! | merge | what several channels send arrives at one, packet by packet ([`ArrayProgram::merge`]) |
//! | layout transformation | the [`Part`] of either channel has several dimensions |
//!
//! What a channel does can also stay from dispatch to dispatch: [`ArrayProgram::chain`] has the configuration start it, and dispatches only
//! move words through it.
//!
//! Limits, evidence, and what only silicon can show are in `docs/native-array.md`.
//!
//! - [`Tile`], [`Channel`]: places.
//! - [`ArrayProgram`]: what is configured. Streams find their own way through the switches.
//! - [`Ring`], [`Part`], [`Region`]: buffers in the array, and what of a kernel's arguments goes into them.
//! - [`Elements`]: the design of all element-wise and row-wise operations. [`Product`]: that of matrix products. [`Broadcast`]: that of
//!   products with many columns. [`Rings`]: that of products with few columns. [`Attention`]: that of attention on one core in each column. [`Passes`]: that of copies.

mod attention;
mod balance;
mod broadcast;
mod chain;
mod configuration;
mod configured;
mod contents;
mod descriptor;
mod dispatch;
mod elements;
mod error;
mod fifo;
mod grid;
mod memo;
mod memory;
mod order;
mod passes;
mod product;
mod program;
mod region;
mod ring;
mod rings;
mod route;
mod switching;
mod tile;

pub use attention::{Attention, AttentionColumn, AttentionCore, AttentionRings, Moves};
pub use broadcast::{Broadcast, BroadcastColumn};
pub use configured::Configured;
pub use contents::{GO_LOCK, Parameters};
pub use descriptor::Part;
pub use dispatch::Dispatch;
pub use elements::{Elements, ElementsColumn, ElementsCore, Flow, Place};
pub use error::ArrayError;
pub use fifo::{Fifo, FifoEnd, FifoSide};
pub use grid::Grid;
pub use memo::Memo;
pub use order::TileOrder;
pub use passes::{Pass, Passes};
pub use product::{CoreMemory, Cut, MemMemory, MemPart, Product, ProductColumn, ProductCore};
pub use program::ArrayProgram;
pub use region::{Dimension, Region};
pub use ring::{OWN_LOCKS, OWN_MEMORY, Ring, SOUTH_MEMORY};
pub use rings::{CoreCode, Rings, RingsColumn, RingsWork};
pub use route::{Circuit, Stream};
pub use tile::{Channel, End, Source, Tile};

#[cfg(test)]
mod mutations;
#[cfg(test)]
mod readers;
#[cfg(test)]
pub(crate) mod testing;
