//! Kernels that were built into the library: the packs of the directory that `GGML_HSA_EMBED_KERNELS` named then.

use aie_jit_iron::KernelPack;
use aie_jit_iron::pack::PackError;

// `const PACKS: &[(&str, &[u8])]`, file name and content, from the build script.
include!(concat!(env!("OUT_DIR"), "/embedded_packs.rs"));

/// Every pack of this build, opened.
pub fn packs() -> impl Iterator<Item = Result<KernelPack, PackError>> {
    PACKS.iter().map(|(name, bytes)| KernelPack::open(name, *bytes))
}
