//! MUL_MAT with few columns: products on chains that never end.
//!
//! `result[m, n] = sum over k of weights[k, m] * columns[k, n]`, of one matrix of weights in blocks and one to four columns of f32.
//!
//! The array is [`Rings`](crate::array::Rings): weights stream through a mem tile to the two cores of a column, in blocks that know nothing of
//! rows; columns go to both; results come back 16 rows at a time. All channels but the shims' are started by the configuration, so that a
//! product takes 53 operations of the instruction stream: for each of four columns two blocks of parameters and three tasks, and one
//! wait. What is cut how is in [`plan`], what is taken in [`problem`].

mod activations;
mod dispatch;
mod kernel;
mod memory;
mod order;
mod parameters;
mod plan;
mod portion;
mod problem;
mod program;
mod scales;
mod sums;
mod units;
mod weights;
