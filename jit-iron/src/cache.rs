//! Kernels that earlier processes compiled.
//!
//! A cache is a directory of the user's with a folder per generation, as the C++ backend has it: kernels for silicon in
//! `<root>/<arch>`, so that it can serve as a `GGML_HSA_KERNEL_DIR`, kernels of other compilers in
//! `<root>/<compiler>/<arch>`, where no other backend looks for them. Only what this store wrote is used: a kernel has a
//! [`Manifest`], and it fits. What is damaged is moved to `<root>/damaged` and rebuilt; what other sources or another
//! toolchain built is rebuilt in its place; files of other origin stay, and are not used.
//!
//! Many processes may use a cache at the same time. A kernel is compiled under its lock ([`crate::lock`]) by the first who gets
//! it; the others find it there. Compile failures are cached too ([`crate::failure`]).

use crate::failure::FailureRecord;
use crate::kernel_files::{Content, KernelFiles, assemble};
use crate::lock::{Lock, Locks};
use crate::manifest::{Manifest, Origin};
use crate::ownership;
use crate::wanted::Wanted;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::{CompileError, KernelCompiler};
use aie_ops::fit;
use rustix::process::geteuid;
use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use thiserror::Error;

/// Folder of damaged kernels.
pub const DAMAGED: &str = "damaged";
/// File that remembers what is known of native kernels on this machine's NPUs; the library's, not the store's.
pub const SELF_TEST: &str = "selftest.json";
/// Marks a directory as a cache for programs that make backups (<https://bford.info/cachedir/>).
const TAG: (&str, &str) = (
    "CACHEDIR.TAG",
    "Signature: 8a477f597d28d172789f06886806bc55\n# Compiled kernels of ggml-hsa. Everything in here can be rebuilt.\n",
);

/// A directory cannot be used as a cache.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[error(
    "kernel cache {}: {reason}; name another directory with GGML_HSA_KERNEL_CACHE_DIR, or make this one usable for you alone",
    path.display()
)]
pub struct CacheError {
    /// The directory.
    pub path: PathBuf,
    /// Why not.
    pub reason: String,
}

/// A directory of compiled kernels that is read and written. Thread-safe; any number of processes may share it.
#[derive(Debug)]
pub struct KernelCache {
    root: PathBuf,
    /// The locks.
    pub locks: Locks,
    user: u32,
    /// Why the first kernel that could not be written was not.
    not_kept: OnceLock<String>,
}

/// `path` with links resolved, when it may be a cache.
fn checked(path: &Path) -> Result<PathBuf, CacheError> {
    let reject = |reason: String| CacheError { path: path.into(), reason };
    let root = path.canonicalize().map_err(|error| reject(error.to_string()))?;
    if let Some(reason) = ownership::precious(&root) {
        return Err(reject(reason));
    }
    ownership::check(&root).map_err(reject)?;
    Ok(root)
}

/// What a cache has of a kernel.
#[derive(Debug)]
pub enum Found {
    /// The kernel.
    Kernel(KernelArtifact),
    /// Nothing.
    Absent,
    /// A kernel of other sources, another toolchain or another node, and what differs.
    Stale(String),
    /// Files that are not a kernel, which file, and why.
    Damaged(PathBuf, String),
    /// Files this store did not write, and how that shows.
    Foreign(String),
}

/// Where a kernel came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// An earlier process had compiled it, or another one just now.
    Found,
    /// It was compiled.
    Compiled,
}

impl KernelCache {
    /// Uses `path`, creating it if needed, for this user alone.
    ///
    /// # Errors
    /// It cannot be created or written, it is a directory with other content ([`ownership::precious`]), or others could put
    /// kernels there.
    pub fn open(path: &Path) -> Result<Self, CacheError> {
        use std::os::unix::fs::DirBuilderExt as _;
        let reject = |reason: String| CacheError { path: path.into(), reason };
        if let Some(reason) = ownership::precious(path) {
            return Err(reject(reason));
        }
        // Not `exists`: the attempt reports what cannot be inspected.
        if let Err(error) = fs::DirBuilder::new().recursive(true).mode(0o700).create(path) {
            return Err(reject(format!("it cannot be created: {error}")));
        }
        let root = checked(path)?;
        let locks = Locks::of(&root);
        // Checked once, not with every kernel.
        drop(locks.lock("open").map_err(|error| reject(format!("it cannot be written: {error}")))?);
        let tag = root.join(TAG.0);
        // Never through a link that somebody has put there.
        match fs::File::create_new(&tag).and_then(|mut file| file.write_all(TAG.1.as_bytes())) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                Err(reject(format!("it cannot be written: {error}")))
            }
            _ => Ok(Self { root, locks, user: geteuid().as_raw(), not_kept: OnceLock::new() }),
        }
    }

    /// Uses the cache at `path` if there is one, and makes nothing: for those who only look, or only remove. `None` where there is no
    /// directory, or an empty one.
    ///
    /// # Errors
    /// As [`KernelCache::open`], and for a directory with content that no cache has been in: it lacks the file that marks caches.
    pub fn existing(path: &Path) -> Result<Option<Self>, CacheError> {
        let reject = |reason: String| CacheError { path: path.into(), reason };
        if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
            return Ok(None);
        }
        if let Some(reason) = ownership::precious(path) {
            return Err(reject(reason));
        }
        let root = checked(path)?;
        if !root.join(TAG.0).exists() {
            let mut entries = fs::read_dir(&root).map_err(|error| reject(error.to_string()))?;
            return match entries.next() {
                None => Ok(None),
                Some(_) => Err(reject(format!("it is no kernel cache: it has no file {}", TAG.0))),
            };
        }
        Ok(Some(Self { locks: Locks::of(&root), root, user: geteuid().as_raw(), not_kept: OnceLock::new() }))
    }

    /// The directory, with links resolved.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a compiler's kernels for a generation are.
    pub fn folder(&self, compiler: &dyn KernelCompiler, arch: &Arch) -> PathBuf {
        self.root.join(compiler.folder()).join(&arch.name)
    }

    /// Where the kernel is or would be.
    pub fn files(&self, compiler: &dyn KernelCompiler, wanted: &Wanted<'_>) -> KernelFiles {
        KernelFiles::new(self.folder(compiler, wanted.arch), wanted.stem())
    }

    /// Looks for a kernel without waiting for its writers. `origin` is what it has to be built from; `None` accepts any.
    pub fn look(&self, files: &KernelFiles, wanted: &Wanted<'_>, origin: Option<&Origin>) -> Found {
        let content = match files.read(wanted.arch.limits.device_heap_bytes) {
            Ok(Some(content)) => content,
            Ok(None) => return Found::Absent,
            Err((path, reason)) => return Found::Damaged(path, reason),
        };
        let Content { pdi, instructions, manifest, owner } = content;
        if owner != Some(self.user) {
            return Found::Foreign("it belongs to another user".into());
        }
        let Some(manifest) = manifest else { return Found::Foreign("it has no manifest".into()) };
        let manifest = match Manifest::parse(&manifest) {
            Ok(manifest) => manifest,
            Err(error) => return Found::Damaged(files.manifest(), error.to_string()),
        };
        let Some(instructions) = instructions else {
            return Found::Damaged(files.instructions(), "it is missing, but its PDI exists".into());
        };
        let (described, node) = (Some(&manifest), Some(wanted.node));
        let artifact = match assemble(&wanted.name, wanted.arch, pdi, instructions, described, node) {
            Ok(artifact) => artifact,
            Err(fault) => {
                let (path, reason) = files.fault(fault);
                return Found::Damaged(path, reason);
            }
        };
        if manifest.arch != wanted.arch.name || manifest.kernel != wanted.name {
            let reason = format!("its manifest is for {} on {}", manifest.kernel, manifest.arch);
            return Found::Damaged(files.manifest(), reason);
        }
        if let Some(difference) = origin.and_then(|origin| manifest.origin.difference(origin)) {
            return Found::Stale(difference);
        }
        if !wanted.is_of(&manifest.node) {
            return Found::Stale("it was built for another node of the same name".into());
        }
        if let Err(misfit) = fit::check(wanted.op, wanted.node, &artifact) {
            return Found::Damaged(files.instructions(), misfit.to_string());
        }
        Found::Kernel(artifact)
    }

    /// The kernel: from the cache, or compiled and put there. Waits for another thread or process that is compiling it.
    ///
    /// A result that cannot be written is logged and returned anyway.
    ///
    /// # Errors
    /// As [`KernelCompiler::compile`]; a failure of an earlier process with the same origin is returned without trying again.
    pub fn fetch(
        &self,
        compiler: &dyn KernelCompiler,
        wanted: &Wanted<'_>,
    ) -> Result<(KernelArtifact, Way), CompileError> {
        let (files, origin) = (self.files(compiler, wanted), Origin::of(compiler));
        if let Found::Kernel(artifact) = self.look(&files, wanted, Some(&origin)) {
            return Ok((artifact, Way::Found));
        }
        let lock = match self.lock(&files) {
            Ok(lock) => lock,
            Err(error) => {
                tracing::warn!("kernel cache {}: {error}; {} is not cached", self.root.display(), wanted.name);
                return Ok((wanted.compile(compiler)?, Way::Compiled));
            }
        };
        let keep = match self.look(&files, wanted, Some(&origin)) {
            Found::Kernel(artifact) => return Ok((artifact, Way::Found)),
            Found::Absent => true,
            Found::Stale(difference) => {
                tracing::info!("cached kernel {} is stale: {difference}; rebuilding it", wanted.name);
                true
            }
            Found::Damaged(path, reason) => self.put_aside(&files, &path, &reason),
            Found::Foreign(how) => {
                tracing::warn!(
                    "{}: {how}, so this store did not write it; it is neither used nor replaced. To use it, copy it to a \
                     directory that GGML_HSA_KERNEL_DIR names",
                    files.pdi().display()
                );
                false
            }
        };
        if let Some(failure) = FailureRecord::find(&files, &origin) {
            return Err(failure);
        }
        let result = self.compile(compiler, wanted, &files, origin, keep);
        drop(lock);
        Ok((result?, Way::Compiled))
    }

    /// Compiles and caches the result. The caller holds the kernel's lock.
    fn compile(
        &self,
        compiler: &dyn KernelCompiler,
        wanted: &Wanted<'_>,
        files: &KernelFiles,
        origin: Origin,
        keep: bool,
    ) -> Result<KernelArtifact, CompileError> {
        let (start, begin) = (Instant::now(), aie_hal::timeline::begin());
        let result = wanted.compile(compiler);
        if begin.is_some() {
            note(compiler.name(), begin, wanted, &result);
        }
        let kept = match &result {
            _ if !keep => Ok(()),
            // Files do not have what makes its streams, and those of one dispatch are not those of another.
            Ok(artifact) if artifact.stream_maker().is_some() => Ok(()),
            Ok(artifact) => {
                let manifest = Manifest::new(artifact, wanted.node, origin, start.elapsed());
                files.publish(artifact, &manifest).and_then(|()| FailureRecord::forget(files))
            }
            Err(CompileError::Failed(failure)) => FailureRecord::keep(files, wanted.node, origin, failure),
            Err(CompileError::Unsupported(_) | CompileError::Unavailable(_)) => Ok(()),
        };
        self.note_loss(wanted, kept);
        result
    }

    /// Compiles the kernel with more features, and puts it in the place of the one that may be there.
    ///
    /// # Errors
    /// As [`KernelCompiler::compile_with`].
    pub fn widen(
        &self,
        compiler: &dyn KernelCompiler,
        wanted: &Wanted<'_>,
        features: &BTreeSet<String>,
    ) -> Result<KernelArtifact, CompileError> {
        let (files, start) = (self.files(compiler, wanted), Instant::now());
        let artifact = compiler.compile_with(wanted.op, wanted.node, wanted.arch, features)?;
        if artifact.stream_maker().is_none() && !matches!(self.look(&files, wanted, None), Found::Foreign(_)) {
            let manifest = Manifest::new(&artifact, wanted.node, Origin::of(compiler), start.elapsed());
            self.note_loss(wanted, self.lock(&files).and_then(|_lock| files.publish(&artifact, &manifest)));
        }
        Ok(artifact)
    }

    fn note_loss(&self, wanted: &Wanted<'_>, kept: io::Result<()>) {
        let Err(error) = kept else { return };
        let reason = format!("kernel cache {}: {} cannot be cached: {error}", self.root.display(), wanted.name);
        // On a full disk all others fail for the same reason.
        if self.not_kept.set(reason.clone()).is_ok() {
            tracing::warn!("{reason}; such kernels are used, and made again by the next process");
        } else {
            tracing::debug!("{reason}");
        }
    }

    /// Why the first kernel that could not be written was not, if there was one.
    pub fn not_kept(&self) -> Option<&str> {
        self.not_kept.get().map(String::as_str)
    }

    /// Waits for all writers of the kernel.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn lock(&self, files: &KernelFiles) -> io::Result<Lock> {
        self.locks.lock(&files.pdi().to_string_lossy())
    }

    /// Moves a damaged kernel away, under its lock. Returns whether that succeeded.
    fn put_aside(&self, files: &KernelFiles, path: &Path, reason: &str) -> bool {
        match self.move_aside(files) {
            Ok(target) => {
                tracing::warn!(
                    "cached kernel file {} is damaged: {reason}; the kernel was moved to {} and is rebuilt",
                    path.display(),
                    target.display()
                );
                true
            }
            Err(error) => {
                tracing::warn!(
                    "cached kernel file {} is damaged: {reason}; it cannot be moved away: {error}; it is not used",
                    path.display()
                );
                false
            }
        }
    }

    /// Moves all files of a kernel into a folder of its own below [`DAMAGED`], the PDI first.
    pub(crate) fn move_aside(&self, files: &KernelFiles) -> io::Result<PathBuf> {
        let parent = self.root.join(DAMAGED);
        fs::create_dir_all(&parent)?;
        let moment = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let prefix = format!("{}-{moment}-", files.stem());
        let target = tempfile::Builder::new().prefix(&prefix).tempdir_in(&parent)?.keep();
        for path in files.all() {
            let Some(name) = path.file_name() else { continue };
            match fs::rename(&path, target.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(target)
    }
}

/// Shows on a timeline that a compiler has worked, on a track for each thread that compiles.
fn note(compiler: &str, begin: Option<u64>, wanted: &Wanted<'_>, result: &Result<KernelArtifact, CompileError>) {
    let outcome = match result {
        Ok(_) => "compiled",
        Err(CompileError::Failed(_)) => "failed",
        Err(_) => return,
    };
    let thread = std::thread::current();
    let name = thread.name().map_or_else(|| format!("{:?}", thread.id()), ToOwned::to_owned);
    let detail = || format!("{outcome} by {compiler}");
    aie_hal::timeline::end(&format!("compiling in thread {name}"), &wanted.name, begin, detail);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::{arch, sum};
    use crate::double::Double;
    use aie_hal::artifact::Configuration;
    use aie_ops::compiler::ReferenceCompiler;
    use aie_ops::{Node, Operation};
    use rstest::rstest;
    use std::sync::atomic::Ordering::SeqCst;

    struct Rig {
        root: tempfile::TempDir,
        compiler: Double,
    }

    impl Rig {
        fn new() -> Self {
            Self { root: tempfile::tempdir().unwrap(), compiler: Double::new("1") }
        }

        fn path(&self) -> PathBuf {
            self.root.path().join("cache")
        }

        /// Fetches the sum of 64 elements through a cache that was opened again.
        fn fetch(&self) -> Result<Way, CompileError> {
            let cache = KernelCache::open(&self.path()).unwrap();
            let ((op, node), arch) = (sum(64), arch("aie2p"));
            let (artifact, way) = cache.fetch(&self.compiler, &Wanted::of(op, &node, &arch))?;
            let expected = ReferenceCompiler.compile(op, &node, &arch).unwrap();
            assert_eq!(artifact.identity(), expected.identity());
            Ok(way)
        }

        fn file(&self, end: &str) -> PathBuf {
            self.path().join("aie2p").join(format!("add-64f32-64f32-64f32{end}"))
        }

        fn calls(&self) -> usize {
            self.compiler.calls.load(SeqCst)
        }

        fn aside(&self) -> usize {
            fs::read_dir(self.path().join(DAMAGED)).map_or(0, |entries| entries.count())
        }
    }

    #[test]
    fn a_kernel_is_compiled_once_for_all_processes() {
        let rig = Rig::new();
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
        assert_eq!(rig.fetch(), Ok(Way::Found));
        assert_eq!(rig.calls(), 1);
        for end in [".pdi", "_insts.bin", ".json"] {
            assert!(rig.file(end).is_file(), "{end}");
        }
        assert!(rig.path().join("CACHEDIR.TAG").is_file());
    }

    /// A later process finds it in the place of the narrower one, whichever that was made by.
    #[test]
    fn a_kernel_with_more_features_takes_the_place_of_the_other() {
        #[derive(Debug)]
        struct Wide;
        impl KernelCompiler for Wide {
            fn name(&self) -> &str {
                "wide"
            }
            fn identity(&self) -> String {
                "1".into()
            }
            fn sources(&self) -> String {
                "s".into()
            }
            fn compile(&self, op: &dyn Operation, node: &Node, arch: &Arch) -> Result<KernelArtifact, CompileError> {
                self.compile_with(op, node, arch, &["a".into()].into())
            }
            fn compile_with(
                &self,
                op: &dyn Operation,
                node: &Node,
                arch: &Arch,
                features: &BTreeSet<String>,
            ) -> Result<KernelArtifact, CompileError> {
                let configuration =
                    Configuration { name: "design".into(), needs: ["a".into()].into(), has: features.clone() };
                Ok(ReferenceCompiler.compile(op, node, arch)?.with_configuration(configuration))
            }
        }
        let root = tempfile::tempdir().unwrap();
        let ((op, node), arch) = (sum(64), arch("aie2p"));
        let cache = || KernelCache::open(&root.path().join("cache")).unwrap();
        let fetch = || cache().fetch(&Wide, &Wanted::of(op, &node, &arch)).unwrap();
        let has = |artifact: &KernelArtifact| artifact.configuration().unwrap().has.clone();
        let (narrow, way) = fetch();
        assert_eq!((has(&narrow), way), (["a".into()].into(), Way::Compiled));
        let both: BTreeSet<String> = ["a".into(), "b".into()].into();
        cache().widen(&Wide, &Wanted::of(op, &node, &arch), &both).unwrap();
        let (wide, way) = fetch();
        assert_eq!((has(&wide), way), (both, Way::Found));
    }

    fn cut(rig: &Rig, end: &str, length: usize) {
        let whole = fs::read(rig.file(end)).unwrap();
        fs::write(rig.file(end), &whole[..length]).unwrap();
    }

    /// What is moved away is what is damaged. A killed writer leaves no PDI.
    #[rstest]
    #[case::toolchain(|rig: &Rig| *rig.compiler.identity.lock() = "2".into(), 0)]
    #[case::empty(|rig: &Rig| cut(rig, ".pdi", 0), 1)]
    #[case::cut(|rig: &Rig| cut(rig, "_insts.bin", 5), 1)]
    #[case::manifest(|rig: &Rig| cut(rig, ".json", 20), 1)]
    #[case::killed_writer(|rig: &Rig| fs::remove_file(rig.file(".pdi")).unwrap(), 0)]
    #[case::missing(|rig: &Rig| fs::remove_file(rig.file("_insts.bin")).unwrap(), 1)]
    #[case::directory(|rig: &Rig| {
        fs::remove_file(rig.file(".pdi")).unwrap();
        fs::create_dir(rig.file(".pdi")).unwrap();
    }, 1)]
    fn stale_and_damaged_kernels_are_rebuilt(#[case] spoil: impl Fn(&Rig), #[case] moved: usize) {
        let rig = Rig::new();
        rig.fetch().unwrap();
        let sizes = || [".pdi", "_insts.bin"].map(|end| fs::metadata(rig.file(end)).unwrap().len());
        let before = sizes();
        spoil(&rig);
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
        assert_eq!(rig.fetch(), Ok(Way::Found));
        assert_eq!((rig.calls(), rig.aside(), sizes()), (2, moved, before));
    }

    #[test]
    fn what_somebody_else_put_there_is_neither_used_nor_replaced() {
        let rig = Rig::new();
        rig.fetch().unwrap();
        fs::remove_file(rig.file(".json")).unwrap();
        let before = fs::read(rig.file(".pdi")).unwrap();
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
        assert_eq!(fs::read(rig.file(".pdi")).unwrap(), before);
        assert!(!rig.file(".json").exists());
    }

    #[test]
    fn failures_are_remembered_until_something_changes() {
        let rig = Rig::new();
        let failure = aie_ops::compiler::Failure { cause: "no room".into(), output: b"line\n".as_slice().into() };
        *rig.compiler.error.lock() = Some(CompileError::Failed(failure.clone()));
        assert_eq!(rig.fetch(), Err(CompileError::Failed(failure)));
        let Err(CompileError::Failed(again)) = rig.fetch() else { panic!("it was compiled") };
        assert!(again.cause.starts_with("no room (cached in ") && again.cause.contains(".failed.json"), "{again:?}");
        assert_eq!(&*again.output, b"line\n");
        assert_eq!((rig.calls(), fs::read(rig.file(".failed.log")).unwrap()), (1, b"line\n".to_vec()));
        *rig.compiler.error.lock() = None;
        rig.fetch().unwrap_err();
        *rig.compiler.identity.lock() = "2".into();
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
        assert!(!rig.file(".failed.json").exists() && !rig.file(".failed.log").exists());
    }

    #[rstest]
    #[case(CompileError::Unavailable("no compiler here".into()))]
    #[case(CompileError::Unsupported("not mine".into()))]
    fn what_is_no_verdict_is_not_remembered(#[case] error: CompileError) {
        let rig = Rig::new();
        *rig.compiler.error.lock() = Some(error.clone());
        assert_eq!(rig.fetch(), Err(error));
        *rig.compiler.error.lock() = None;
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
    }

    #[test]
    fn a_cache_that_cannot_be_written_serves_all_the_same() {
        let rig = Rig::new();
        KernelCache::open(&rig.path()).unwrap();
        // A file in place of the folder stops root too.
        fs::write(rig.path().join("aie2p"), "").unwrap();
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
        assert_eq!(rig.fetch(), Ok(Way::Compiled));
    }

    #[test]
    fn directories_that_must_not_be_a_cache_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("Cargo.toml"), "").unwrap();
        let message = KernelCache::open(root.path()).unwrap_err().to_string();
        assert!(message.contains("Cargo.toml") && message.contains("GGML_HSA_KERNEL_CACHE_DIR"), "{message}");
        assert!(KernelCache::open(Path::new("/")).unwrap_err().reason.contains("root"));
        // Through a link too.
        let link = root.path().join("link");
        std::os::unix::fs::symlink("/", &link).unwrap();
        assert!(KernelCache::open(&link).unwrap_err().reason.contains("root"));
        fs::write(root.path().join("file"), "").unwrap();
        KernelCache::open(&root.path().join("file")).unwrap_err();
        KernelCache::open(&root.path().join("file/cache")).unwrap_err();
    }

    #[test]
    fn looking_makes_nothing_and_other_folders_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let count = |path: &Path| fs::read_dir(path).unwrap().count();
        let (missing, empty, other) =
            (root.path().join("missing"), root.path().join("empty"), root.path().join("other"));
        for path in [&empty, &other] {
            fs::create_dir(path).unwrap();
        }
        fs::write(other.join("notes.txt"), "mine").unwrap();
        assert!(KernelCache::existing(&missing).unwrap().is_none() && !missing.exists());
        assert!(KernelCache::existing(&empty).unwrap().is_none() && count(&empty) == 0);
        let message = KernelCache::existing(&other).unwrap_err().to_string();
        assert!(message.contains("it is no kernel cache") && count(&other) == 1, "{message}");
        KernelCache::open(&missing).unwrap();
        assert!(KernelCache::existing(&missing).unwrap().is_some());
    }

    #[test]
    fn the_tag_is_not_written_through_a_link() {
        let root = tempfile::tempdir().unwrap();
        let (cache, target) = (root.path().join("cache"), root.path().join("target"));
        fs::create_dir(&cache).unwrap();
        std::os::unix::fs::symlink(&target, cache.join(TAG.0)).unwrap();
        KernelCache::open(&cache).unwrap();
        assert!(!target.exists());
    }

    #[test]
    fn the_directory_is_made_for_the_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let rig = Rig::new();
        let path = rig.path().join("deep/er");
        KernelCache::open(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
