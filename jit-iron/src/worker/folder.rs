//! Where workers write: `<parent>/ggml-hsa-jit-XXXXXX/`, one per worker, with `tmp/` (its `TMPDIR`) and a folder per job.
//!
//! A host that is killed cannot clean up, so every folder has a locked file in it. The lock ends with the host, and the
//! next folder that is created beside it removes the unlocked ones.

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstatvfs, open, openat};
use std::fs::{self, File, Permissions};
use std::io::{self, Read as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const PREFIX: &str = "ggml-hsa-jit-";
const LOCK: &str = "lock";
const TEMPORARY: &str = "tmp";
/// What an entry of a directory takes at least, so that empty files count as well.
const ENTRY_BYTES: u64 = 4096;
/// With less than this left, a file system is full.
const FULL_BYTES: u64 = 1 << 20;

/// The folder of one worker. Removed with everything in it when dropped.
#[derive(Debug)]
pub(super) struct WorkerFolder {
    folder: TempDir,
    /// Locked until this host ends or removes the folder.
    _lock: File,
}

impl WorkerFolder {
    /// Makes one in `parent`, which is made, too, if it is missing; removes the folders there that hosts left behind.
    pub fn create(parent: &Path) -> io::Result<Self> {
        fs::create_dir_all(parent)?;
        remove_abandoned(parent);
        let folder = tempfile::Builder::new()
            .prefix(PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(std::path::absolute(parent)?)?;
        fs::create_dir(folder.path().join(TEMPORARY))?;
        // Locked before it has its name: a folder whose lock exists and is free is an orphan.
        let unnamed = folder.path().join(TEMPORARY).join(LOCK);
        let lock = File::create(&unnamed)?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)?;
        fs::rename(unnamed, folder.path().join(LOCK))?;
        Ok(Self { folder, _lock: lock })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// For files that disturb nothing.
    pub fn temporary(&self) -> PathBuf {
        self.path().join(TEMPORARY)
    }

    /// A new folder for a job. What earlier jobs left in the temporary folder is removed.
    pub fn job(&self) -> io::Result<JobFolder> {
        for entry in fs::read_dir(self.temporary())? {
            let entry = entry?;
            let removed = if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())
            } else {
                fs::remove_file(entry.path())
            };
            warn_if_left(&entry.path(), removed);
        }
        let folder = tempfile::Builder::new().prefix("job-").tempdir_in(self.path())?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let handle = open(folder.path(), flags, Mode::empty())?;
        Ok(JobFolder { folder, handle })
    }
}

/// The folder of one job. Removed with everything in it when dropped.
#[derive(Debug)]
pub(super) struct JobFolder {
    folder: TempDir,
    handle: OwnedFd,
}

impl JobFolder {
    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Removes it; what is left is reported.
    pub fn close(self) {
        let path = self.path().to_owned();
        warn_if_left(&path, self.folder.close());
    }

    /// Whether the file system has no space left.
    pub fn is_full(&self) -> bool {
        fstatvfs(&self.handle).is_ok_and(|system| system.f_bavail.saturating_mul(system.f_frsize) < FULL_BYTES)
    }

    /// Reads a file of at most `limit` bytes that a worker says it wrote. It must be a regular file in this folder: not a link,
    /// which may lead anywhere, and not a pipe, which may never end.
    pub fn read(&self, name: &str, limit: usize) -> Result<Arc<[u8]>, String> {
        if name.is_empty() || name.contains(['/', '\0']) || matches!(name, "." | "..") {
            return Err(format!("{name:?} is not the name of a file in the job's folder"));
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&self.handle, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(rustix::io::Errno::LOOP) => return Err(format!("{name:?} is a symbolic link")),
            Err(error) => return Err(format!("cannot read {name:?}: {error}")),
        };
        let metadata = file.metadata().map_err(|error| format!("cannot read {name:?}: {error}"))?;
        if !metadata.is_file() {
            return Err(format!("{name:?} is not a regular file"));
        }
        let mut bytes = Vec::with_capacity(usize::try_from(metadata.len()).unwrap_or(limit).min(limit) + 1);
        // One byte more than allowed, so that a file that grows meanwhile is noticed.
        let read = file.take(limit as u64 + 1).read_to_end(&mut bytes);
        read.map_err(|error| format!("cannot read {name:?}: {error}"))?;
        if bytes.len() > limit {
            return Err(format!("{name:?} is larger than the device heap of {limit} bytes"));
        }
        Ok(bytes.into())
    }
}

fn warn_if_left(path: &Path, removed: io::Result<()>) {
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!("cannot remove what a kernel compiler left in {}: {error}", path.display());
        }
        _ => {}
    }
}

/// Bytes on the disk of everything below `path`, or any number larger than `limit` as soon as it is more. Links count as
/// themselves. What disappears meanwhile does not count.
pub(super) fn disk_usage(path: &Path, limit: u64) -> u64 {
    let mut bytes = 0;
    let mut folders = vec![path.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(metadata) = entry.metadata() else { continue };
            bytes += (metadata.blocks() * 512).max(ENTRY_BYTES);
            if bytes > limit {
                return bytes;
            }
            if metadata.is_dir() {
                folders.push(entry.path());
            }
        }
    }
    bytes
}

/// Removes the workers' folders in `parent` whose hosts are gone.
fn remove_abandoned(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ours = entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes());
        if !is_ours || !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let path = entry.path();
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        // Without a lock it is being created; other users' cannot be opened.
        let Ok(lock) = open(path.join(LOCK), flags, Mode::empty()) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            tracing::debug!("removing {}, which belongs to no process any more", path.display());
            warn_if_left(&path, fs::remove_dir_all(&path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn entries(path: &Path) -> usize {
        fs::read_dir(path).unwrap().count()
    }

    #[test]
    fn folders_are_removed_with_what_is_in_them() {
        let parent = tempfile::tempdir().unwrap();
        let folder = WorkerFolder::create(&parent.path().join("made/too")).unwrap();
        let job = folder.job().unwrap();
        fs::create_dir(job.path().join("deep")).unwrap();
        fs::write(job.path().join("deep/file"), "x").unwrap();
        fs::write(folder.temporary().join("left"), "x").unwrap();
        let path = job.path().to_owned();
        drop(job);
        assert!(!path.exists());
        folder.job().unwrap();
        assert_eq!(entries(&folder.temporary()), 0);
        assert_eq!(fs::metadata(folder.path()).unwrap().permissions().mode() & 0o777, 0o700);
        drop(folder);
        assert_eq!(entries(&parent.path().join("made/too")), 0);
    }

    #[test]
    fn folders_without_a_host_are_removed_and_no_others() {
        let parent = tempfile::tempdir().unwrap();
        let held = WorkerFolder::create(parent.path()).unwrap();
        let abandoned = parent.path().join("ggml-hsa-jit-dead");
        let unrelated = parent.path().join("ggml-hsa");
        let unlocked = parent.path().join("ggml-hsa-jit-mine");
        let target = tempfile::tempdir().unwrap();
        for folder in [&abandoned, &unrelated, target.path()] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join(LOCK), "").unwrap();
        }
        fs::create_dir(&unlocked).unwrap();
        let link = parent.path().join("ggml-hsa-jit-link");
        symlink(target.path(), &link).unwrap();
        symlink(target.path(), abandoned.join("out")).unwrap();
        let _second = WorkerFolder::create(parent.path()).unwrap();
        assert!(!abandoned.exists());
        for left in [held.path(), &unrelated, &unlocked, &link, &target.path().join(LOCK)] {
            assert!(left.exists(), "{}", left.display());
        }
    }

    #[test]
    fn usage_counts_what_is_on_the_disk_and_follows_no_links() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(disk_usage(folder.path(), u64::MAX), 0);
        fs::create_dir(folder.path().join("deep")).unwrap();
        fs::write(folder.path().join("deep/file"), vec![1; 1 << 20]).unwrap();
        symlink("/proc", folder.path().join("link")).unwrap();
        // A file of any length may take no space.
        File::create(folder.path().join("sparse")).unwrap().set_len(1 << 40).unwrap();
        let bytes = disk_usage(folder.path(), u64::MAX);
        assert!((1 << 20..(1 << 20) + 65536).contains(&bytes), "{bytes}");
        assert!(disk_usage(folder.path(), 5000) > 5000);
    }

    #[test]
    fn a_file_system_with_space_is_not_full() {
        let parent = tempfile::tempdir().unwrap();
        let folder = WorkerFolder::create(parent.path()).unwrap();
        assert!(!folder.job().unwrap().is_full());
    }
}
