//! What the library says of its work: counts, a timeline, and the events that both are made from.

pub mod events;
pub mod graph_file;
pub mod statistics;
pub mod trace_file;
