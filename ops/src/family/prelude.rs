//! What every family is written with: the trait and its types, the rules and the frame of kernels.

pub(super) use super::cpu::element::{is_plain, load, load_one, load_row, read, read_row, store, write};
pub(super) use super::cpu::kernel::{KernelInput, arguments, in_range, kernel};
pub(super) use super::cpu::map::{as_one_row, fill_rows, map, map_pieces, map_row_bytes, map_rows};
pub(super) use super::cpu::rows::{
    PARALLEL_WORK, Row, Scratch, disjoint_rows, for_each_piece, for_each_row, vectorised,
};
pub(super) use super::moving::{
    NOT_WORDS, copy_run, copy_strided, dense_blocks, own_type, repeat_run, units, whole_words,
};
pub(super) use super::rules::*;
pub(super) use crate::node::{Node, OpParams, Unsupported};
pub(super) use crate::operation::{Flatten, Operation, Placement};
pub(super) use crate::tensor::{DataType, Tensor};
pub(super) use aie_hal::{HostFunction, HostFunctionError};
pub(super) use std::sync::Arc;
