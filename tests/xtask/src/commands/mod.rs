//! The commands, one file each.

pub mod abi;
pub mod archs;
pub mod backend_ops;
pub mod bad_input;
pub mod bench;
pub mod block_formats;
pub mod cmake;
pub mod conformance;
pub mod demo;
pub mod environment;
pub mod faults;
pub mod formats;
pub mod hsa_headers;
pub mod iron;
pub mod kernel_headers;
pub mod kld;
pub mod models;
pub mod operations;
pub mod rpc;
pub mod splits;
pub mod store;
pub mod stress;
pub mod test;
pub mod testbed;
pub mod vm;
pub mod xrt;
