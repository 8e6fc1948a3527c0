//! Where a store looks for a kernel, in order: built into the library, the user's kernel directory, the cache, a compiler.
//!
//! The order is the C++ backend's. A kernel that the user put somewhere on purpose and that is damaged ends the search with an
//! error, because another one in its place would hide the damage; in the cache it is moved away and made again. A kernel that
//! is whole but was made for other tensors ([`aie_ops::fit`]), or is none for the device, is passed over: the search goes on.

use crate::cache::{Found, KernelCache, Wanted, Way, origin};
use crate::compiler::{CompileError, KernelCompiler};
use crate::counters::{Live, count};
use crate::directory::KernelDirectory;
use crate::jit_policy::JitPolicy;
use crate::pack::KernelPack;
use crate::settings::GGML_HSA_KERNEL_DIR;
use crate::store::StoreError;
use aie_hal::KernelArtifact;
use aie_ops::artifact::{DescriptionError, read_description};
use aie_ops::fit::{self, Fit};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;

/// The sources of one store.
#[derive(Debug)]
pub(crate) struct Sources {
    pub(crate) embedded: Vec<KernelPack>,
    pub(crate) directory: Option<KernelDirectory>,
    pub(crate) cache: Option<KernelCache>,
    pub(crate) compilers: Vec<Arc<dyn KernelCompiler>>,
    pub(crate) policy: JitPolicy,
    pub(crate) silicon: bool,
    /// Why compilers were not available and kernels did not fit, as far as it has been said.
    pub(crate) told: Mutex<BTreeSet<String>>,
    pub(crate) counters: Live,
}

/// A kernel and the name of its source.
type FoundIn = (KernelArtifact, &'static str);

impl Sources {
    /// Names of sources, for statistics.
    pub(crate) const EMBEDDED: &str = "embedded";
    pub(crate) const DIRECTORY: &str = "directory";
    const CACHE: &str = "cache";
    const COMPILED: &str = "compiled";

    /// The kernel and where it was, compiled if it was nowhere and that is allowed.
    pub(crate) fn find(&self, wanted: &Wanted<'_>) -> Result<FoundIn, StoreError> {
        let mut tried = Vec::new();
        if let Some(found) = self.search_given(wanted, &mut tried)? {
            return Ok(found);
        }
        let found = if self.policy == JitPolicy::Off {
            let found = self.search_cache(wanted, &mut tried);
            tried.push("compiling is off (GGML_HSA_JIT)".into());
            found
        } else {
            self.compile(wanted, &mut tried)
        };
        let (name, arch) = (wanted.name.to_owned(), wanted.arch.name.clone());
        // Compilers that share a folder say the same.
        tried.dedup();
        found.ok_or_else(|| StoreError::NotFound { name, arch, tried: tried.join("; ") })
    }

    /// The kernel and where it was, if it can be had without a compiler.
    pub(crate) fn find_ready(&self, wanted: &Wanted<'_>) -> Result<Option<FoundIn>, StoreError> {
        let mut tried = Vec::new();
        let given = self.search_given(wanted, &mut tried)?;
        Ok(given.or_else(|| self.search_cache(wanted, &mut tried)))
    }

    /// What came with the library or from the user.
    fn search_given(&self, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> Result<Option<FoundIn>, StoreError> {
        if let Some(artifact) = self.search_embedded(wanted, tried) {
            return Ok(Some((artifact, Self::EMBEDDED)));
        }
        Ok(self.search_directory(wanted, tried)?.map(|artifact| (artifact, Self::DIRECTORY)))
    }

    fn search_embedded(&self, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> Option<KernelArtifact> {
        for pack in &self.embedded {
            match pack.load(wanted.op, wanted.name, wanted.node, wanted.arch) {
                Ok(Some(artifact)) if self.fits(&artifact, wanted, &"the library", tried) => {
                    count(&self.counters.embedded);
                    return Some(artifact);
                }
                Ok(_) => {}
                Err(error) => tried.push(error.to_string()),
            }
        }
        if !self.embedded.is_empty() {
            tried.push("not built into the library".into());
        }
        None
    }

    fn search_directory(
        &self,
        wanted: &Wanted<'_>,
        tried: &mut Vec<String>,
    ) -> Result<Option<KernelArtifact>, StoreError> {
        let Some(directory) = &self.directory else {
            tried.push(format!("no kernel directory ({GGML_HSA_KERNEL_DIR} is not set)"));
            return Ok(None);
        };
        let found = directory.load(wanted.op, wanted.name, wanted.node, wanted.arch)?;
        let place = directory.path().join(&wanted.arch.name);
        let Some(artifact) = found else {
            tried.push(format!("not in {}", place.display()));
            return Ok(None);
        };
        if !self.fits(&artifact, wanted, &place.display(), tried) {
            return Ok(None);
        }
        count(&self.counters.directory);
        Ok(Some(artifact))
    }

    /// Reads the cache only. The compilers say what a kernel has to be made from and in which folder it is.
    fn search_cache(&self, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> Option<FoundIn> {
        let Some(cache) = &self.cache else {
            tried.push("no cache".into());
            return None;
        };
        for compiler in &self.compilers {
            let files = cache.files(&**compiler, wanted);
            match cache.look(&files, wanted, Some(&origin(&**compiler, wanted))) {
                Found::Kernel(artifact) => {
                    // The cache has compared it with the tensors.
                    if self.is_for_device(&artifact, tried) {
                        count(&self.counters.cache);
                        return Some((artifact, Self::CACHE));
                    }
                }
                Found::Absent => tried.push(format!("not in {}", files.folder().display())),
                Found::Stale(reason) | Found::Foreign(reason) => {
                    tried.push(format!("{}: {reason}", files.pdi().display()));
                }
                Found::Damaged(path, reason) => tried.push(format!("{} is damaged: {reason}", path.display())),
            }
        }
        None
    }

    fn compile(&self, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> Option<FoundIn> {
        for compiler in &self.compilers {
            let result = match &self.cache {
                Some(cache) => cache.fetch(&**compiler, wanted),
                None => compiler.compile(wanted.op, wanted.node, wanted.arch).map(|artifact| (artifact, Way::Compiled)),
            };
            match result {
                Ok((artifact, way)) => {
                    let (fits, counter, from) = match way {
                        Way::Found => (self.is_for_device(&artifact, tried), &self.counters.cache, Self::CACHE),
                        Way::Compiled => {
                            let fits =
                                self.fits(&artifact, wanted, &format_args!("compiler {}", compiler.name()), tried);
                            (fits, &self.counters.compiled, Self::COMPILED)
                        }
                    };
                    if !fits {
                        continue;
                    }
                    count(counter);
                    return Some((artifact, from));
                }
                Err(CompileError::Unsupported(reason)) => {
                    tried.push(format!("compiler {} does not support it: {reason}", compiler.name()));
                }
                Err(CompileError::Failed(failure)) => {
                    tried.push(format!("compiler {} failed: {}", compiler.name(), failure.cause));
                }
                Err(CompileError::Unavailable(reason)) => {
                    let message = format!("compiler {} is not available: {reason}", compiler.name());
                    // It is about the machine, not the kernel: once is enough.
                    if self.told.lock().insert(message.clone()) {
                        tracing::warn!("{message}");
                    }
                    tried.push(message);
                }
            }
        }
        if self.compilers.is_empty() {
            tried.push("no compiler".into());
        }
        None
    }

    /// A kernel that configures nothing must not reach an NPU: its results would be what memory held before.
    fn is_for_device(&self, artifact: &KernelArtifact, tried: &mut Vec<String>) -> bool {
        let fits = !self.silicon || matches!(read_description(artifact), Err(DescriptionError::Compiled { .. }));
        if !fits {
            tried.push(format!("{} is a reference artifact, which only simulated devices execute", artifact.name()));
        }
        fits
    }

    /// Whether the kernel from `place` may be used: it is for the device, and does not touch other bytes than the tensors have,
    /// which would be garbage.
    fn fits(
        &self,
        artifact: &KernelArtifact,
        wanted: &Wanted<'_>,
        place: &dyn Display,
        tried: &mut Vec<String>,
    ) -> bool {
        if !self.is_for_device(artifact, tried) {
            return false;
        }
        match fit::check(wanted.op, wanted.node, artifact) {
            Ok(Fit::Fits) => true,
            Ok(Fit::Unknown(cause)) => {
                tracing::debug!("kernel {} from {place}: its arguments are not checked: {cause}", artifact.name());
                true
            }
            Err(misfit) => {
                let message = format!("kernel {} from {place} is not used: {misfit}", artifact.name());
                // The search for a kernel can come here twice.
                if self.told.lock().insert(message.clone()) {
                    tracing::warn!("{message}");
                }
                tried.push(message);
                false
            }
        }
    }
}
