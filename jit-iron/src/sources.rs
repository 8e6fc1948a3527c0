//! Where a store looks for a kernel, in order: built into the library, the user's kernel directory, then each compiler's cache
//! and the compiler itself.
//!
//! The order of places is the C++ backend's; compilers come in the order of the store, so that a cached kernel of a later one
//! does not hide that an earlier one can make it. A kernel that the user put somewhere on purpose and that is damaged ends the search with an
//! error, because another one in its place would hide the damage; in the cache it is moved away and rebuilt. A kernel that
//! is complete but built for other tensors ([`aie_ops::fit`]), or not for the device, is skipped: the search continues.

use crate::cache::{Found, KernelCache, Way};
use crate::counters::StoreCounters;
use crate::directory::{DirectoryError, KernelDirectory};
use crate::jit_policy::JitPolicy;
use crate::kernel_files::KernelFiles;
use crate::manifest::Origin;
use crate::pack::KernelPack;
use crate::settings::{GGML_HSA_IRON_DIR, GGML_HSA_JIT, GGML_HSA_JIT_PYTHON, GGML_HSA_KERNEL_DIR};
use crate::supply::{Supplied, Supplier};
use crate::wanted::Wanted;
use aie_hal::format::pdi::Pdi;
use aie_hal::format::reference;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::artifact::is_code;
use aie_ops::compiler::{CompileError, KernelCompiler};
use aie_ops::fit::{self, Fit};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use thiserror::Error;

/// The store has no kernel.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreError {
    /// The kernel directory or a file in it cannot be used.
    #[error(transparent)]
    Directory(#[from] DirectoryError),
    /// No source had it.
    #[error("no kernel {name} for {arch}: {tried}")]
    NotFound {
        /// Kernel name.
        name: String,
        /// Generation.
        arch: String,
        /// The result of every source.
        tried: String,
    },
    /// It is being compiled in the background. The only answer that changes: ask again when [`arrivals`](crate::KernelStore::arrivals) has risen.
    #[error("kernel {name} for {arch} is being compiled")]
    Pending {
        /// Kernel name.
        name: String,
        /// Generation.
        arch: String,
    },
    /// No source has a kernel of this generation ([`supplies`](crate::KernelStore::supplies)).
    #[error(
        "no kernel for {arch} is available from any source: {tried}; generate kernels with ggml-hsa-gen-kernels and name their directory with \
         {GGML_HSA_KERNEL_DIR}, or compile them here: {GGML_HSA_JIT}=eager, with IRON and its designs installed \
         ({GGML_HSA_IRON_DIR}, {GGML_HSA_JIT_PYTHON})"
    )]
    NoKernels {
        /// Generation.
        arch: String,
        /// The result of every source.
        tried: String,
    },
    /// There is no source for kernels of this generation.
    #[error(
        "no kernels for {device}: available in this build: [{}], device reports: [{device}]; name a directory of kernels with \
         {GGML_HSA_KERNEL_DIR}, or enable compilation (GGML_HSA_JIT)",
        available.join(", ")
    )]
    NoSource {
        /// Generations of the embedded kernels.
        available: Vec<String>,
        /// Generation of the device.
        device: String,
    },
}

#[derive(Debug, Default)]
pub(crate) struct Sources {
    pub(crate) embedded: Vec<KernelPack>,
    pub(crate) directory: Option<KernelDirectory>,
    pub(crate) cache: Option<KernelCache>,
    pub(crate) compilers: Vec<Arc<dyn KernelCompiler>>,
    pub(crate) policy: JitPolicy,
    pub(crate) silicon: bool,
    /// Whether kernels are only looked for and made in memory: nothing is written to the cache.
    pub(crate) foresight: bool,
    /// Messages about unavailable compilers and misfitting kernels that have been logged.
    pub(crate) logged: Mutex<BTreeSet<String>>,
    pub(crate) counters: Mutex<StoreCounters>,
}

impl Sources {
    /// The kernel and its source, compiled if it was not found and that is allowed.
    pub(crate) fn find(&self, wanted: &Wanted<'_>) -> Result<Supplied, StoreError> {
        let mut tried = Vec::new();
        if let Some(found) = self.search_given(wanted, &mut tried)? {
            return Ok(found);
        }
        let found = if self.policy == JitPolicy::Off {
            if self.cache.is_none() {
                tried.push("no cache".into());
            }
            let found = self.compilers.iter().find_map(|compiler| self.search_cache(&**compiler, wanted, &mut tried));
            tried.push("compiling is off (GGML_HSA_JIT)".into());
            found
        } else {
            if self.compilers.is_empty() {
                tried.push("no compiler".into());
            }
            self.compilers.iter().find_map(|compiler| self.compile(&**compiler, wanted, &mut tried))
        };
        let (name, arch) = (wanted.name.clone(), wanted.arch.name.clone());
        // Compilers that share a folder give the same result.
        tried.dedup();
        found.ok_or_else(|| StoreError::NotFound { name, arch, tried: tried.join("; ") })
    }

    /// The kernel and its source, if it is available without waiting: a compiler that needs milliseconds is asked, of the others
    /// only the caches.
    pub(crate) fn find_ready(&self, wanted: &Wanted<'_>) -> Result<Option<Supplied>, StoreError> {
        let mut tried = Vec::new();
        if let Some(found) = self.search_given(wanted, &mut tried)? {
            return Ok(Some(found));
        }
        Ok(self.compilers.iter().find_map(|compiler| match compiler.is_immediate() {
            true => self.compile(&**compiler, wanted, &mut tried),
            false => self.search_cache(&**compiler, wanted, &mut tried),
        }))
    }

    /// The kernel that came with the library or from the user, else that of the first compiler, if that one makes machine code in
    /// milliseconds.
    pub(crate) fn make_code(&self, wanted: &Wanted<'_>) -> Result<Option<Supplied>, StoreError> {
        match self.search_given(wanted, &mut Vec::new())? {
            Some(given) => Ok(Some(given)),
            None => Ok(self.make_at_once(wanted)),
        }
    }

    fn make_at_once(&self, wanted: &Wanted<'_>) -> Option<Supplied> {
        let compiler = self.compilers.first().filter(|compiler| compiler.makes_code() && compiler.is_immediate())?;
        compiler.admits(wanted.node, wanted.arch).ok()?;
        let made = match self.policy {
            JitPolicy::Off => return None,
            _ => wanted.compile(&**compiler),
        };
        let source = format_args!("compiler {}", compiler.name());
        let artifact = made.ok().filter(|artifact| self.fits(artifact, wanted, &source, &mut Vec::new()))?;
        self.counters.lock().compiled += 1;
        Some(Supplied { artifact, supplier: Supplier::Compiler(compiler.name().into()) })
    }

    /// The kernel of the first compiler that makes it with these features.
    pub(crate) fn widen(
        &self,
        wanted: &Wanted<'_>,
        features: &BTreeSet<String>,
    ) -> Result<KernelArtifact, CompileError> {
        let mut result = Err(CompileError::Unavailable(format!("no compiler ({GGML_HSA_JIT})")));
        let compilers = if self.policy == JitPolicy::Off { &[][..] } else { &self.compilers };
        for compiler in compilers.iter().filter(|compiler| admits(&***compiler, wanted, &mut Vec::new())) {
            result = match &self.cache {
                Some(cache) if !self.foresight => cache.widen(&**compiler, wanted, features),
                _ => compiler.compile_with(wanted.op, wanted.node, wanted.arch, features),
            };
            if result.is_ok() {
                break;
            }
        }
        result
    }

    /// What came with the library or from the user.
    fn search_given(&self, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> Result<Option<Supplied>, StoreError> {
        if let Some(artifact) = self.search_embedded(wanted, tried) {
            return Ok(Some(Supplied { artifact, supplier: Supplier::Embedded }));
        }
        let found = self.search_directory(wanted, tried)?;
        Ok(found.map(|artifact| Supplied { artifact, supplier: Supplier::Directory }))
    }

    fn search_embedded(&self, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> Option<KernelArtifact> {
        for pack in &self.embedded {
            match pack.load(wanted) {
                Ok(Some(artifact))
                    if wanted.is_with(&artifact) && self.fits(&artifact, wanted, &"the library", tried) =>
                {
                    self.counters.lock().embedded += 1;
                    return Some(artifact);
                }
                Ok(_) => {}
                Err(error) => self.warn_once(error.to_string(), tried),
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
        let found = directory.load(wanted)?.filter(|artifact| wanted.is_with(artifact));
        let place = directory.path().join(&wanted.arch.name);
        let Some(artifact) = found else {
            tried.push(format!("not in {}", place.display()));
            return Ok(None);
        };
        if !self.fits(&artifact, wanted, &place.display(), tried) {
            return Ok(None);
        }
        self.counters.lock().directory += 1;
        Ok(Some(artifact))
    }

    /// Reads the cache only. The compiler defines the origin of a kernel and its folder.
    fn search_cache(
        &self,
        compiler: &dyn KernelCompiler,
        wanted: &Wanted<'_>,
        tried: &mut Vec<String>,
    ) -> Option<Supplied> {
        let cache = self.cache.as_ref()?;
        if !admits(compiler, wanted, tried) {
            return None;
        }
        let files = cache.files(compiler, wanted);
        match cache.look(&files, wanted, Some(&Origin::of(compiler))) {
            // The cache has compared it with the tensors.
            Found::Kernel(artifact) => self.cached(artifact, compiler, tried),
            Found::Absent => {
                tried.push(format!("not in {}", files.folder().display()));
                None
            }
            Found::Stale(reason) | Found::Foreign(reason) => {
                tried.push(format!("{}: {reason}", files.pdi().display()));
                None
            }
            Found::Damaged(path, reason) => {
                tried.push(format!("{} is damaged: {reason}", path.display()));
                None
            }
        }
    }

    fn cached(
        &self,
        artifact: KernelArtifact,
        compiler: &dyn KernelCompiler,
        tried: &mut Vec<String>,
    ) -> Option<Supplied> {
        self.is_for_device(&artifact, tried).then(|| {
            self.counters.lock().cache += 1;
            Supplied { artifact, supplier: Supplier::Cache(compiler.name().into()) }
        })
    }

    /// The kernel from the compiler's cache, or from the compiler.
    fn compile(&self, compiler: &dyn KernelCompiler, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> Option<Supplied> {
        if !admits(compiler, wanted, tried) {
            return None;
        }
        let name = compiler.name();
        if self.foresight
            && let Some(found) = self.search_cache(compiler, wanted, tried)
        {
            return Some(found);
        }
        let result = match &self.cache {
            Some(cache) if !self.foresight => cache.fetch(compiler, wanted),
            _ => wanted.compile(compiler).map(|artifact| (artifact, Way::Compiled)),
        };
        match result {
            Ok((artifact, Way::Found)) => return self.cached(artifact, compiler, tried),
            Ok((artifact, Way::Compiled)) if self.fits(&artifact, wanted, &format_args!("compiler {name}"), tried) => {
                self.counters.lock().compiled += 1;
                return Some(Supplied { artifact, supplier: Supplier::Compiler(name.into()) });
            }
            Ok(_) => {}
            Err(CompileError::Unsupported(reason)) => {
                tried.push(format!("compiler {name} does not support it: {reason}"));
            }
            Err(CompileError::Failed(failure)) => tried.push(format!("compiler {name} failed: {}", failure.cause)),
            Err(CompileError::Unavailable(reason)) => {
                let message = format!("compiler {name} is not available: {reason}");
                // It is about the machine, not the kernel: once is enough. No alarm where another compiler makes kernels.
                if self.logged.lock().insert(message.clone()) {
                    match self.compiler_beside(name) {
                        Some(other) => tracing::info!("{message}; kernels are made by compiler {other}"),
                        None => tracing::warn!("{message}"),
                    }
                }
                tried.push(message);
            }
        }
        None
    }

    /// The compiler that makes kernels for this device where the one of this name does not.
    fn compiler_beside(&self, name: &str) -> Option<&str> {
        let others = self.counting_compilers().filter(|other| other.name() != name);
        others.filter(|other| other.available().is_ok()).map(|other| other.name()).next()
    }

    /// A kernel that configures nothing must not reach an NPU: its results would be undefined.
    fn is_for_device(&self, artifact: &KernelArtifact, tried: &mut Vec<String>) -> bool {
        let fits = !self.silicon || is_code(artifact);
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
                self.warn_once(message, tried);
                false
            }
        }
    }

    /// Warns of what should not be, and goes on. The search for a kernel can come here twice.
    fn warn_once(&self, message: String, tried: &mut Vec<String>) {
        if self.logged.lock().insert(message.clone()) {
            tracing::warn!("{message}");
        }
        tried.push(message);
    }
}

/// Whether kernels of `compiler` may be used on the device at hand.
fn admits(compiler: &dyn KernelCompiler, wanted: &Wanted<'_>, tried: &mut Vec<String>) -> bool {
    let admitted = compiler.admits(wanted.node, wanted.arch);
    admitted.map_err(|reason| tried.push(format!("compiler {}: {reason}", compiler.name()))).is_ok()
}

/// Whether any kernel could be found, before one is requested: a device without kernels would run everything on the CPU
/// unnoticed. The answer is cheap and optimistic: one kernel anywhere is enough, whatever it computes, and so
/// is a compiler that starts.
impl Sources {
    /// Whether any source could have a kernel for `arch`; if not, [`StoreError::NoKernels`] with the result of each.
    pub(crate) fn supply(&self, arch: &Arch) -> Result<(), StoreError> {
        let mut tried = Vec::new();
        let found = self.embedded_supply(arch, &mut tried)
            || self.directory_supply(arch, &mut tried)
            || self.cache_supply(arch, &mut tried)
            || self.compiler_supply(&mut tried);
        // Compilers that share a folder give the same result.
        tried.dedup();
        let none = || StoreError::NoKernels { arch: arch.name.clone(), tried: tried.join("; ") };
        if found { Ok(()) } else { Err(none()) }
    }

    fn embedded_supply(&self, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let others: Vec<&str> =
            self.embedded.iter().map(|pack| pack.arch()).filter(|name| *name != arch.name).collect();
        if self.embedded.iter().any(|pack| pack.arch() == arch.name && pack.pdis().any(|pdi| self.counts(pdi))) {
            return true;
        }
        tried.push(match &others[..] {
            [] => "none are built into the library".into(),
            others => format!("available in this build: [{}], device reports: [{}]", others.join(", "), arch.name),
        });
        false
    }

    fn directory_supply(&self, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let Some(directory) = &self.directory else {
            tried.push(format!("no kernel directory ({GGML_HSA_KERNEL_DIR} is not set)"));
            return false;
        };
        self.folder_supply(&directory.path().join(&arch.name), arch, tried)
    }

    /// What compilers cached. Without a compiler it is unknown which kernels of a cache are current.
    fn cache_supply(&self, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let Some(cache) = &self.cache else { return false };
        self.counting_compilers().any(|compiler| self.folder_supply(&cache.folder(compiler, arch), arch, tried))
    }

    fn compiler_supply(&self, tried: &mut Vec<String>) -> bool {
        if self.policy == JitPolicy::Off {
            tried.push(format!("compiling is off ({GGML_HSA_JIT})"));
            return false;
        }
        let before = tried.len();
        // From the last one: the last resort needs the least.
        let found = self.counting_compilers().rev().any(|compiler| match compiler.available() {
            Ok(()) => true,
            Err(error) => {
                tried.push(format!("compiler {}: {error}", compiler.name()));
                false
            }
        });
        if !found && tried.len() == before {
            tried.push("no compiler".into());
        }
        found
    }

    /// On silicon reference kernels do not count, nor do their compilers.
    fn counting_compilers(&self) -> impl DoubleEndedIterator<Item = &dyn KernelCompiler> {
        self.compilers.iter().map(|compiler| &**compiler).filter(|compiler| !self.silicon || compiler.makes_code())
    }

    fn folder_supply(&self, folder: &Path, arch: &Arch, tried: &mut Vec<String>) -> bool {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let paths = entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|end| end == "pdi"));
        let mut seen = false;
        for path in paths {
            let Some(stem) = path.file_stem().and_then(|stem| stem.to_str()) else { continue };
            let files = KernelFiles::new(folder, stem);
            let Ok(Some(content)) = files.read(arch.limits.device_heap_bytes) else { continue };
            if content.instructions.is_none() {
                continue;
            }
            if self.counts(&content.pdi) {
                return true;
            }
            seen = true;
        }
        let what = if seen { "reference kernels only, which an NPU does not run, in" } else { "no kernels in" };
        tried.push(format!("{what} {}", folder.display()));
        false
    }

    fn counts(&self, pdi: &[u8]) -> bool {
        !self.silicon || !Pdi::parse(pdi).is_ok_and(|pdi| !matches!(reference::extract(&pdi.cdo()), Ok(None)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::{arch, put, sum};
    use crate::pack::pack;
    use crate::store::{KernelStore, KernelStoreBuilder};
    use aie_hal::format::cdo::CdoBuilder;
    use aie_hal::format::pdi;
    use aie_ops::compiler::ReferenceCompiler;
    use aie_ops::{Node, Operation};
    use rstest::rstest;
    use std::path::PathBuf;

    /// A compiler for silicon that is available or not, and never compiles.
    #[derive(Debug)]
    struct Iron(bool);

    impl KernelCompiler for Iron {
        fn name(&self) -> &str {
            "iron"
        }
        fn identity(&self) -> String {
            String::new()
        }
        fn sources(&self) -> String {
            String::new()
        }
        fn available(&self) -> Result<(), CompileError> {
            if self.0 { Ok(()) } else { Err(CompileError::Unavailable("there is no Python".into())) }
        }
        fn compile(&self, _: &dyn Operation, _: &Node, _: &Arch) -> Result<KernelArtifact, CompileError> {
            panic!("nothing is compiled to learn what could come")
        }
    }

    /// A compiler for silicon that needs nothing.
    #[derive(Debug)]
    struct Native;

    impl KernelCompiler for Native {
        fn name(&self) -> &str {
            "native"
        }
        fn identity(&self) -> String {
            String::new()
        }
        fn sources(&self) -> String {
            String::new()
        }
        fn compile(&self, _: &dyn Operation, _: &Node, _: &Arch) -> Result<KernelArtifact, CompileError> {
            panic!("nothing is compiled here")
        }
    }

    /// Reference kernels, or compiled ones, of aie2p in `folder`.
    fn fill(folder: &Path, code: bool) {
        let (op, node) = sum(64);
        let name = put(folder, op, &node, &arch("aie2p"));
        if code {
            let mut cdo = CdoBuilder::new();
            cdo.write(0x0023_2000, 1);
            fs::write(folder.join("aie2p").join(format!("{name}.pdi")), pdi::write(&cdo).unwrap()).unwrap();
        }
    }

    fn message(builder: KernelStoreBuilder) -> Option<String> {
        builder.build().unwrap().supplies(&arch("aie2p")).err().map(|error| {
            assert!(matches!(error, StoreError::NoKernels { .. }));
            error.to_string()
        })
    }

    fn silicon() -> KernelStoreBuilder {
        KernelStore::builder().for_silicon()
    }

    #[rstest]
    #[case::code(true, None)]
    #[case::reference(false, Some("reference kernels only, which an NPU does not run, in "))]
    fn a_directory_counts_when_an_npu_can_run_what_is_in_it(#[case] code: bool, #[case] expected: Option<&str>) {
        let root = tempfile::tempdir().unwrap();
        fill(root.path(), code);
        let text = message(silicon().kernel_directory(root.path()));
        assert_eq!(text.is_some(), expected.is_some(), "{text:?}");
        assert!(text.unwrap_or_default().contains(expected.unwrap_or_default()));
        assert_eq!(message(KernelStore::builder().kernel_directory(root.path())), None);
        // Of another generation.
        fs::rename(root.path().join("aie2p"), root.path().join("aie2")).unwrap();
        let text = message(silicon().kernel_directory(root.path())).unwrap();
        assert!(text.contains(&format!("no kernels in {}", root.path().join("aie2p").display())), "{text}");
    }

    #[test]
    fn half_a_kernel_does_not_count() {
        let root = tempfile::tempdir().unwrap();
        fill(root.path(), true);
        let folder = root.path().join("aie2p");
        fs::remove_file(folder.join("add-64f32-64f32-64f32_insts.bin")).unwrap();
        assert!(message(silicon().kernel_directory(root.path())).is_some());
    }

    #[rstest]
    #[case::code(true)]
    #[case::reference(false)]
    fn what_is_built_in_counts_the_same_way(#[case] code: bool) {
        let root = tempfile::tempdir().unwrap();
        fill(root.path(), code);
        let (bytes, _) = pack(&root.path().join("aie2p"), &arch("aie2p")).unwrap();
        let embedded =
            |builder: KernelStoreBuilder, name| builder.embedded(KernelPack::open(name, bytes.clone()).unwrap());
        assert_eq!(message(embedded(silicon(), "aie2p")).is_none(), code);
        assert_eq!(message(embedded(KernelStore::builder(), "aie2p")), None);
        let other = embedded(silicon(), "aie2p").build().unwrap().supplies(&arch("aie2")).unwrap_err().to_string();
        assert!(other.contains("available in this build: [aie2p], device reports: [aie2]"), "{other}");
    }

    #[test]
    fn a_cache_counts_for_the_compiler_that_filled_it() {
        let root = tempfile::tempdir().unwrap();
        let cache = |path: &PathBuf| KernelCache::open(path).unwrap();
        let path = root.path().join("cache");
        let with = |compiler: Option<Iron>| {
            let builder = silicon().cache(cache(&path));
            compiler.into_iter().fold(builder, |builder, compiler| builder.compiler(Arc::new(compiler)))
        };
        let text = message(with(Some(Iron(false)))).unwrap();
        assert!(text.contains("no kernels in ") && text.contains("compiler iron: there is no Python"), "{text}");
        fill(&path, true);
        assert_eq!(message(with(Some(Iron(false)))), None);
        assert_eq!(message(with(Some(Iron(false))).policy(JitPolicy::Off)), None);
        assert!(message(with(None)).unwrap().contains("no compiler"));
    }

    /// A message about an unavailable compiler is a note where another one serves, and a warning elsewhere.
    #[rstest]
    #[case::alone("none", true, None)]
    #[case::native("native", true, Some("native"))]
    #[case::reference_on_an_npu("reference", true, None)]
    #[case::reference("reference", false, Some("reference"))]
    fn another_compiler_may_serve(#[case] other: &str, #[case] silicon: bool, #[case] expected: Option<&str>) {
        let mut compilers: Vec<Arc<dyn KernelCompiler>> = vec![Arc::new(Iron(false))];
        match other {
            "native" => compilers.insert(0, Arc::new(Native)),
            "reference" => compilers.push(Arc::new(ReferenceCompiler)),
            _ => {}
        }
        let sources = Sources { compilers, silicon, ..Sources::default() };
        assert_eq!(sources.compiler_beside("iron"), expected);
    }

    #[test]
    fn a_compiler_counts_when_it_starts_and_may() {
        assert_eq!(message(silicon().compiler(Arc::new(Iron(true)))), None);
        assert_eq!(message(silicon().compiler(Arc::new(Iron(true))).policy(JitPolicy::Background)), None);
        let text = message(silicon().compiler(Arc::new(Iron(true))).policy(JitPolicy::Off)).unwrap();
        assert!(text.contains("compiling is off (GGML_HSA_JIT)"), "{text}");
        assert!(message(silicon().compiler(Arc::new(ReferenceCompiler))).unwrap().contains("no compiler"));
        assert_eq!(message(KernelStore::builder().compiler(Arc::new(ReferenceCompiler))), None);
    }

    #[test]
    fn the_message_says_what_would_change_it() {
        let text = message(silicon()).unwrap();
        let expected = [
            "none are built into the library",
            "GGML_HSA_KERNEL_DIR is not set",
            "ggml-hsa-gen-kernels",
            "GGML_HSA_IRON_DIR",
            "GGML_HSA_JIT_PYTHON",
        ];
        assert!(expected.iter().all(|part| text.contains(part)), "{text}");
    }
}
