//! `libggml-hsa.so`: a ggml backend for AI Engine NPUs that an unmodified llama.cpp loads through `GGML_BACKEND_PATH`.
//!
//! Choices that shape it:
//!
//! - **One binary for every ggml.** Nothing of ggml is linked or included; structures and numbers are recognised when the
//!   library is loaded ([`abi`]).
//! - **Whole graphs.** A graph becomes one command list and one submission ([`plan`]). Operations without a kernel run as host
//!   calls inside it, so the scheduler has no reason to split the graph. The list is cached for the next token.
//! - **Host-visible memory.** Tensors live where the CPU sees them; what the device sees is restored around each graph.
//! - **Nothing ends the program.** A wrong setting, a missing file, a failing device are messages and, where ggml has to know,
//!   a failed status ([`abi::guard`]).
//!
//! The way of a graph: [`abi::graph`] reads it, [`plan::stream::Stream`] recognises it or has [`plan::Plan`] record it, the queue runs
//! it, and the stream synchronizes with it when results are read. [`config`] has the settings.
//!
//! # Example
//!
//! What the library makes of its environment:
//!
//! ```
//! use aie_hal::Environment;
//! use ggml_hsa::config::Config;
//!
//! let environment = Environment::from_pairs([("GGML_HSA_DEVICES", "mock:aie2p"), ("GGML_HSA_ENABLE_LOG", "banana")]);
//! let (config, problems) = Config::read(&environment);
//! assert_eq!(config.devices, Some(vec!["mock:aie2p".to_owned()]));
//! assert!(!config.verbose && problems[0].variable == "GGML_HSA_ENABLE_LOG");
//! ```

pub mod abi;
pub mod config;
pub mod device;
#[cfg(test)]
mod doubles;
pub mod kernels;
pub mod memory;
pub mod plan;
pub mod report;
pub mod settings;
