//! Where a kernel came from.

use aie_hal::KernelArtifact;

/// The place where a store found a kernel, or the compiler that made it just now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Supplier {
    /// It was built into the library.
    Embedded,
    /// The user's kernel directory.
    Directory,
    /// The cache: an earlier process, or another one just now, had it compiled by the compiler of this name.
    Cache(String),
    /// It was compiled, by the compiler of this name.
    Compiler(String),
}

impl Supplier {
    /// Who answers for its content, in one word: the compiler's name, `embedded` or `directory`.
    pub fn name(&self) -> &str {
        match self {
            Self::Embedded => "embedded",
            Self::Directory => "directory",
            Self::Cache(compiler) | Self::Compiler(compiler) => compiler,
        }
    }

    /// Whether it was there before anybody asked for it: neither the library's build nor the user has to make it again.
    pub fn is_given(&self) -> bool {
        matches!(self, Self::Embedded | Self::Directory)
    }

    /// The place, in one word.
    pub(crate) fn place(&self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Directory => "directory",
            Self::Cache(_) => "cache",
            Self::Compiler(_) => "compiled",
        }
    }
}

/// A kernel with where it came from.
#[derive(Debug, Clone)]
pub struct Supplied {
    /// The kernel.
    pub artifact: KernelArtifact,
    /// Where it came from.
    pub supplier: Supplier,
}
