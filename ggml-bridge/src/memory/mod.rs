//! Memory of the host and where tensors lie in it: buffers by address, pinned spans, and weights in the layout that kernels read.

pub mod buffer_map;
pub mod host_memory;
pub mod ranges;
pub mod weights;
