//! Removing entries from a cache.
//!
//! The C++ backend empties its cache by deleting the whole directory, whatever it holds. Here only files go that the store
//! wrote ([`Inventory`]); everything else stays and is reported. Nothing is compiled into the cache meanwhile.

use crate::cache::{CacheError, DAMAGED, KernelCache};
use crate::inventory::{Care, Inventory, Item, State};
use crate::kernel_files::remove;
use crate::lock::Lock;
use aie_hal::ArchRegistry;
use aie_ops::compiler::KernelCompiler;
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// An unfinished file of this age has no writer any more.
const ABANDONED: Duration = Duration::from_secs(3600);

/// What was removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Cleared {
    /// Kernels, failures and remains.
    pub items: usize,
    /// Bytes of their files.
    pub bytes: u64,
    /// What stays because the store did not write it.
    pub kept: Vec<PathBuf>,
    /// What could not be removed, and why.
    pub failed: Vec<String>,
}

/// What [`prune`] takes.
#[derive(Debug, Clone, Default)]
pub struct Limits {
    /// Kernels that were made longer ago go.
    pub age: Option<Duration>,
    /// The oldest kernels go until no more than this many bytes are left.
    pub bytes: Option<u64>,
}

/// Empties the cache at `path`. A path without a directory, or with an empty one, is a cache that is empty.
///
/// # Errors
/// The directory is no cache ([`KernelCache::existing`]), or cannot be read.
pub fn clear(path: &Path) -> Result<Cleared, CacheError> {
    let Some(cache) = KernelCache::existing(path)? else { return Ok(Cleared::default()) };
    let everything = || {
        let _lock = alone(&cache)?;
        let inventory = Inventory::take(&cache, &[], &ArchRegistry::builtin(), Care::Quick)?;
        Ok(remove_items(&cache, &inventory, |_| true))
    };
    everything().map_err(|error: io::Error| CacheError { path: path.into(), reason: error.to_string() })
}

/// Removes what will not be used: stale and damaged kernels, failures of other sources or toolchains, what killed writers left,
/// and kernels beyond `limits`.
///
/// # Errors
/// The cache cannot be read.
pub fn prune(
    cache: &KernelCache,
    compilers: &[Arc<dyn KernelCompiler>],
    arches: &ArchRegistry,
    limits: &Limits,
) -> io::Result<Cleared> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let oldest = limits.age.map_or(0, |age| now.saturating_sub(age).as_secs());
    let _lock = alone(cache)?;
    let inventory = Inventory::take(cache, compilers, arches, Care::Whole)?;
    let too_many = beyond(&inventory, limits.bytes.unwrap_or(u64::MAX));
    Ok(remove_items(cache, &inventory, |item| match &item.state {
        State::Good => item.made < oldest || item.files.first().is_some_and(|pdi| too_many.contains(pdi)),
        State::Failed { .. } => item.made < oldest,
        State::Unfinished => item.files.iter().all(|path| abandoned(path)),
        State::Stale { .. } | State::Damaged { .. } | State::Aside => true,
    }))
}

/// The PDIs of the good kernels that are left when the newest ones fill `room` bytes.
fn beyond(inventory: &Inventory, room: u64) -> BTreeSet<&PathBuf> {
    let mut good: Vec<_> = inventory.items.iter().filter(|item| item.state == State::Good).collect();
    good.sort_by_key(|item| Reverse(item.made));
    let mut used = 0u64;
    let fits = |item: &&&Item| {
        used = used.saturating_add(item.bytes);
        used <= room
    };
    let fitting = good.iter().take_while(fits).count();
    good[fitting..].iter().filter_map(|item| item.files.first()).collect()
}

fn abandoned(path: &Path) -> bool {
    let changed = path.symlink_metadata().and_then(|metadata| metadata.modified());
    changed.is_ok_and(|changed| changed.elapsed().is_ok_and(|age| age > ABANDONED))
}

/// Holds the whole cache.
fn alone(cache: &KernelCache) -> io::Result<Lock> {
    if let Some(lock) = cache.locks.try_lock_all()? {
        return Ok(lock);
    }
    tracing::warn!("kernel cache {}: waiting for running compilations", cache.root().display());
    cache.locks.lock_all()
}

fn remove_items(cache: &KernelCache, inventory: &Inventory, goes: impl Fn(&Item) -> bool) -> Cleared {
    let mut cleared = Cleared { kept: inventory.foreign.clone(), ..Cleared::default() };
    let mut folders = BTreeSet::new();
    for item in inventory.items.iter().filter(|item| goes(item)) {
        // The PDI is first among a kernel's files, so that no other reader sees half of one.
        match item.files.iter().try_for_each(|path| remove(path)) {
            Ok(()) => {
                cleared.items += 1;
                cleared.bytes += item.bytes;
            }
            Err(error) => cleared.failed.push(format!("{}: {error}", item.kernel)),
        }
        if item.state == State::Aside {
            folders.insert(cache.root().join(DAMAGED).join(&item.kernel));
        }
        folders.extend(item.files.iter().filter_map(|path| path.parent()).map(Path::to_owned));
    }
    let above: BTreeSet<_> = folders.iter().filter_map(|folder| folder.parent()).map(Path::to_owned).collect();
    for folder in folders.iter().chain(&above).filter(|folder| *folder != cache.root()) {
        remove_if_empty(folder);
    }
    cleared
}

/// The system does not remove directories that are not empty, so no check is needed first.
fn remove_if_empty(folder: &Path) {
    let _ = fs::remove_dir(folder);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::Way;
    use crate::directory::tests::{arch, sum};
    use crate::double::Double;
    use crate::wanted::Wanted;
    use aie_ops::compiler::{CompileError, ReferenceCompiler};
    use std::os::unix::fs::symlink;

    fn fill(path: &Path, compiler: &dyn KernelCompiler, elements: usize) -> Result<Way, CompileError> {
        let ((op, node), arch) = (sum(elements), arch("aie2p"));
        let cache = KernelCache::open(path).unwrap();
        cache.fetch(compiler, &Wanted::of(op, &node, &arch)).map(|(_, way)| way)
    }

    fn states(path: &Path, compilers: &[Arc<dyn KernelCompiler>], care: Care) -> Vec<(String, State)> {
        let cache = KernelCache::open(path).unwrap();
        let inventory = Inventory::take(&cache, compilers, &ArchRegistry::builtin(), care).unwrap();
        inventory.items.into_iter().map(|item| (item.kernel, item.state)).collect()
    }

    fn left(path: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            walk(path).iter().map(|p| p.strip_prefix(path).unwrap().display().to_string()).collect();
        names.retain(|name| name != ".lock" && name != "CACHEDIR.TAG");
        names.sort_unstable();
        names
    }

    fn walk(path: &Path) -> Vec<PathBuf> {
        let mut all = Vec::new();
        for entry in fs::read_dir(path).unwrap() {
            let entry = entry.unwrap();
            all.push(entry.path());
            if entry.file_type().unwrap().is_dir() {
                all.extend(walk(&entry.path()));
            }
        }
        all
    }

    #[test]
    fn clearing_takes_what_the_store_wrote_and_nothing_else() {
        let root = tempfile::tempdir().unwrap();
        let (path, outside) = (root.path().join("cache"), root.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kernel.pdi"), "mine").unwrap();
        let failing = Double::new("1");
        *failing.error.lock() = Some(CompileError::failed("no"));
        fill(&path, &ReferenceCompiler, 64).unwrap();
        fill(&path, &Double::new("1"), 64).unwrap();
        fill(&path, &failing, 32).unwrap_err();
        // Damaged, unfinished.
        fs::write(path.join("aie2p/add-64f32-64f32-64f32.pdi"), "").unwrap();
        fill(&path, &Double::new("1"), 64).unwrap();
        fs::write(path.join("aie2p/.making-x1"), "half").unwrap();
        // Not ours.
        symlink(&outside, path.join("aie4")).unwrap();
        symlink(outside.join("kernel.pdi"), path.join("aie2p/other.pdi")).unwrap();
        fs::write(path.join("aie2p/notes.txt"), "mine").unwrap();
        fs::write(path.join("aie2p/config.json"), "{}").unwrap();
        fs::create_dir_all(path.join("aie2p/more")).unwrap();
        fs::create_dir(path.join("empty")).unwrap();

        let cleared = clear(&path).unwrap();
        assert_eq!((cleared.items, &cleared.failed), (5, &vec![]));
        assert!(cleared.bytes > 4900, "{cleared:?}");
        assert_eq!(cleared.kept.len(), 5);
        let expected =
            ["aie2p", "aie2p/config.json", "aie2p/more", "aie2p/notes.txt", "aie2p/other.pdi", "aie4", "empty"];
        assert_eq!(left(&path), expected);
        assert_eq!(fs::read(outside.join("kernel.pdi")).unwrap(), b"mine");
        assert_eq!(clear(&path).unwrap().items, 0);
    }

    #[test]
    fn an_empty_cache_is_left_empty() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cache");
        assert_eq!(clear(&path).unwrap(), Cleared::default());
        assert!(!path.exists());
        fill(&path, &ReferenceCompiler, 64).unwrap();
        clear(&path).unwrap();
        assert_eq!(left(&path), Vec::<String>::new());
        assert_eq!(fill(&path, &ReferenceCompiler, 64), Ok(Way::Compiled));
    }

    #[test]
    fn precious_directories_are_not_cleared() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(".git")).unwrap();
        fs::write(root.path().join("x.pdi"), "").unwrap();
        assert!(clear(root.path()).unwrap_err().to_string().contains(".git"));
        assert!(clear(Path::new("/")).is_err() && clear(Path::new("/root")).is_err());
        assert_eq!(left(root.path()), [".git", "x.pdi"]);
    }

    #[test]
    fn states_are_reported() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cache");
        let compiler = Arc::new(Double::new("1"));
        for elements in [16, 32, 64] {
            fill(&path, &*compiler, elements).unwrap();
        }
        let list: [Arc<dyn KernelCompiler>; 1] = [Arc::clone(&compiler) as _];
        assert!(states(&path, &list, Care::Whole).iter().all(|(_, state)| *state == State::Good));
        let pdi = path.join("aie2p/add-32f32-32f32-32f32.pdi");
        let mut bytes = fs::read(&pdi).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(&pdi, bytes).unwrap();
        // Sizes do not tell, bytes do.
        assert!(states(&path, &list, Care::Quick).iter().all(|(_, state)| *state == State::Good));
        let whole = states(&path, &list, Care::Whole);
        assert!(matches!(&whole[1].1, State::Damaged { reason } if reason.contains("add-32f32")), "{whole:?}");
        *compiler.identity.lock() = "2".into();
        let stale = states(&path, &list, Care::Quick);
        assert!(stale.iter().all(|(_, state)| matches!(state, State::Stale { .. })), "{stale:?}");
        assert!(states(&path, &[], Care::Quick).iter().all(|(_, state)| *state == State::Good));
    }

    #[test]
    fn pruning_removes_what_will_not_be_used() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("cache");
        let compiler = Arc::new(Double::new("1"));
        let list: [Arc<dyn KernelCompiler>; 1] = [Arc::clone(&compiler) as _];
        let pruned = |limits: &Limits| {
            let cache = KernelCache::open(&path).unwrap();
            prune(&cache, &list, &ArchRegistry::builtin(), limits).unwrap()
        };
        fill(&path, &*compiler, 16).unwrap();
        *compiler.identity.lock() = "2".into();
        fill(&path, &*compiler, 32).unwrap();
        fill(&path, &*compiler, 64).unwrap();
        fs::write(path.join("aie2p/.making-now"), "").unwrap();
        assert_eq!(pruned(&Limits::default()).items, 1);
        assert_eq!(states(&path, &list, Care::Whole).len(), 3);
        let one = Inventory::take(&KernelCache::open(&path).unwrap(), &list, &ArchRegistry::builtin(), Care::Quick);
        let bytes = one.unwrap().items.iter().map(|item| item.bytes).max();
        assert_eq!(pruned(&Limits { bytes, age: None }).items, 1);
        assert_eq!(pruned(&Limits { bytes: None, age: Some(Duration::from_secs(1000)) }).items, 0);
        assert_eq!(pruned(&Limits { bytes: Some(0), age: None }).items, 1);
        assert_eq!(states(&path, &list, Care::Whole), [(".making-now".to_owned(), State::Unfinished)]);
    }
}
