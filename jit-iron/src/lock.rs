//! One writer per kernel, across threads and processes.
//!
//! All locks of a cache are byte ranges of one file: byte `n` stands for the kernels whose key is `n`, the whole file for the
//! cache. The operating system releases a range when its holder closes the file or dies, so that nothing has to
//! be cleaned up after a crash, and no lock files pile up. The locks belong to open files (`F_OFD_SETLKW`), not to processes, so
//! threads of one process exclude each other too.

use nix::fcntl::{FcntlArg, fcntl};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file in a cache.
pub const FILE: &str = ".lock";

/// The locks of one cache.
#[derive(Debug, Clone)]
pub struct Locks {
    path: PathBuf,
}

/// A range that is held until this is dropped.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

impl Locks {
    /// The locks of the cache in `root`.
    pub fn of(root: &Path) -> Self {
        Self { path: root.join(FILE) }
    }

    /// Waits until `key` is free.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn lock(&self, key: &str) -> io::Result<Lock> {
        let digest = Sha256::digest(key);
        let start = i64::from_le_bytes(std::array::from_fn(|index| digest[index])) & (i64::MAX >> 1);
        self.range(start, 1, true)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Waits until all keys are free.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn lock_all(&self) -> io::Result<Lock> {
        self.range(0, 0, true)?.ok_or_else(|| io::ErrorKind::WouldBlock.into())
    }

    /// Locks everything, if all keys are free.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn try_lock_all(&self) -> io::Result<Option<Lock>> {
        self.range(0, 0, false)
    }

    fn range(&self, l_start: i64, l_len: i64, wait: bool) -> io::Result<Option<Lock>> {
        use std::os::unix::fs::OpenOptionsExt as _;
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.custom_flags(libc::O_NOFOLLOW).open(&self.path)?;
        // A length of 0 means up to the end of any file.
        let (l_type, l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
        let range = libc::flock { l_type, l_whence, l_start, l_len, l_pid: 0 };
        loop {
            let request = if wait { FcntlArg::F_OFD_SETLKW(&range) } else { FcntlArg::F_OFD_SETLK(&range) };
            match fcntl(&file, request) {
                Ok(_) => return Ok(Some(Lock { _file: file })),
                Err(nix::Error::EINTR) => {}
                Err(nix::Error::EAGAIN | nix::Error::EACCES) if !wait => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::time::Duration;

    #[test]
    fn threads_exclude_each_other_by_key() {
        let root = tempfile::tempdir().unwrap();
        let locks = Locks::of(root.path());
        let (inside, other) = (AtomicUsize::new(0), locks.lock("other").unwrap());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..20 {
                        let _lock = locks.lock("kernel").unwrap();
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        std::thread::sleep(Duration::from_micros(100));
                        inside.fetch_sub(1, SeqCst);
                    }
                });
            }
        });
        drop(other);
    }

    #[test]
    fn the_whole_waits_for_every_part() {
        let root = tempfile::tempdir().unwrap();
        let locks = Locks::of(root.path());
        let part = locks.lock("kernel").unwrap();
        assert!(locks.try_lock_all().unwrap().is_none());
        drop(part);
        let all = locks.try_lock_all().unwrap().unwrap();
        let waiting = std::thread::spawn({
            let locks = locks.clone();
            move || locks.lock("kernel").map(drop)
        });
        std::thread::sleep(Duration::from_millis(20));
        assert!(!waiting.is_finished());
        drop(all);
        waiting.join().unwrap().unwrap();
    }

    #[test]
    fn links_are_not_followed() {
        let root = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(root.path().join("elsewhere"), root.path().join(FILE)).unwrap();
        Locks::of(root.path()).lock("kernel").unwrap_err();
        assert!(!root.path().join("elsewhere").exists());
    }
}
