//! The families of kernels.
