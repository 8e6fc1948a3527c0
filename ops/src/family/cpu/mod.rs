//! What the CPU functions of the families are made of.
//!
//! All of it is safe code on byte slices of unknown alignment. Three ideas carry it: a kernel is a closure with a checked
//! signature ([`kernel`]), work is handed out by rows of the result, which are disjoint pieces of its memory ([`rows`]), and
//! arithmetic is done on `&[f32]`, borrowed from the argument when it is one and converted otherwise ([`element`]).
//! Loops run inside `pulp`'s run-time dispatch, so that the compiler vectorises them for the machine at hand.

pub mod attention;
pub mod block_dot;
pub mod dot;
pub mod element;
pub mod exp;
pub mod fold;
pub mod integers;
pub mod kernel;
pub mod map;
pub mod rows;
pub mod states;
mod threads;
pub mod trigonometry;
pub mod weights;
