//! Where kernels come from.
//!
//! A [`KernelStore`] answers one question: which artifact computes this normalised node on this generation? It looks in memory
//! first, then in the packs built into the library, the user's kernel directory and the cache, and asks its compilers
//! last. Whatever it finds, good or bad, it remembers, so that planning a graph again costs one hash lookup per node.
//!
//! - Kernels on disk: [`kernel_files`] and [`manifest`], [`directory`] (the user's), [`cache`] (ours, with [`lock`],
//!   [`failure`], [`ownership`]), [`inventory`] and [`clear`] for people, [`pack`] for builds.
//! - Compiling: [`KernelCompiler`](aie_ops::compiler::KernelCompiler)s in their order. [`iron`] makes code for the array and runs
//!   in the processes of [`worker`]; so may reference artifacts, which describe their computation for simulated devices.
//! - Ahead of time: [`configuration`] and [`pregeneration`], for `ggml-hsa-gen-kernels`.
//!
//! ```
//! use aie_jit_iron::{KernelCache, KernelStore};
//! use aie_ops::compiler::ReferenceCompiler;
//! use aie_ops::{DataType, Node, OpParams, Tensor, table};
//! use std::sync::Arc;
//!
//! let folder = tempfile::tempdir()?;
//! let cache = KernelCache::open(&folder.path().join("cache"))?;
//! let store = KernelStore::builder().cache(cache).compiler(Arc::new(ReferenceCompiler)).build()?;
//!
//! let op = table::lookup("ADD").ok_or("no such operation")?;
//! let tensor = Tensor::contiguous(DataType::F32, [1024, 1, 1, 1]);
//! let node = Node::new(op.name(), OpParams::default(), tensor, vec![Some(tensor); 2]);
//! let arch = aie_hal::ArchRegistry::builtin().get("aie2p").ok_or("no such generation")?;
//! assert_eq!(store.get(op, &node, &arch)?.name(), "add-1024f32-1024f32-1024f32");
//! assert_eq!(store.counters().compiled, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

pub mod cache;
pub mod cache_path;
pub mod clear;
pub mod configuration;
pub mod counters;
pub mod directory;
#[cfg(test)]
mod double;
pub mod failure;
pub mod installation;
pub mod inventory;
pub mod iron;
pub mod jit_policy;
pub mod kernel_files;
pub mod kernel_source;
pub mod lock;
pub mod manifest;
pub mod ownership;
pub mod pack;
pub mod pregeneration;
pub mod settings;
mod sources;
pub mod store;
mod supply;
pub mod wanted;
pub mod worker;

pub use cache::{CacheError, KernelCache};
pub use cache_path::CachePath;
pub use counters::StoreCounters;
pub use directory::KernelDirectory;
pub use jit_policy::JitPolicy;
pub use kernel_source::KernelSource;
pub use pack::KernelPack;
pub use sources::StoreError;
pub use store::{KernelStore, KernelStoreBuilder, Missed};
pub use supply::{Supplied, Supplier};
pub use wanted::Wanted;
pub use worker::{WorkerCommand, WorkerCompiler, WorkerLimits};
