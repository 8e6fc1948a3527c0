//! Ownership of a directory: whether it may serve as a cache, and whether one may be emptied.
//!
//! Kernels are code that runs with the user's data. Anyone who can write the cache decides what runs, so only the user may.
//! And a cache may be cleared by a setting, so another directory must not become one by a typing mistake.

use rustix::fs::{Mode, OFlags};
use rustix::process::{getegid, geteuid};
use std::env;
use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

/// Files that mark a directory as a project.
const PROJECT: &[&str] =
    &[".git", ".hg", ".svn", "Cargo.toml", "CMakeLists.txt", "Makefile", "package.json", "pyproject.toml", ".jj"];

/// Why `path`, absolute or not, must not be a cache although only the user can write it: the root, a home directory or one above
/// it, a directory with a project in it. `None` when it is none of these, also when it is not there.
pub fn precious(path: &Path) -> Option<String> {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    if path.parent().is_none() {
        return Some("it is the root of the file system".into());
    }
    let home = env::home_dir().filter(|home| !home.as_os_str().is_empty());
    if let Some(home) = home
        && home.starts_with(&path)
    {
        return Some("it is a home directory or holds one".into());
    }
    // Other users' homes, and the home of a user whose HOME says otherwise.
    if path.parent() == Some(Path::new("/home")) || [Path::new("/home"), Path::new("/root")].contains(&path.as_path()) {
        return Some("it is a home directory or holds one".into());
    }
    let mark = PROJECT.iter().find(|name| path.join(name).symlink_metadata().is_ok())?;
    Some(format!("it holds {mark}, so it is a project's directory"))
}

/// Whether kernels in `path` can be trusted: it is the user's own, and everything above it is so too, or safe. In a directory of
/// the user's that others may write to, the owner of each file decides.
///
/// # Errors
/// Who could put files there.
pub fn check(path: &Path) -> Result<(), String> {
    let user = geteuid().as_raw();
    let metadata = fs::metadata(path).map_err(|error| error.to_string())?;
    if !metadata.is_dir() {
        return Err("it is not a directory".into());
    }
    if metadata.uid() != user {
        return Err(format!("it belongs to user {}, who could put any kernel there", metadata.uid()));
    }
    for above in path.ancestors().skip(1) {
        let metadata = fs::metadata(above).map_err(|error| format!("{}: {error}", above.display()))?;
        // What belongs to this user's group belongs to this user alone where everybody has a group.
        let groups = if metadata.gid() == getegid().as_raw() { 0o002 } else { 0o022 };
        let (sticky, others_write) = (metadata.mode() & 0o1000 != 0, metadata.mode() & groups != 0);
        if metadata.uid() != user && metadata.uid() != 0 {
            return Err(format!("{} belongs to user {}, who could replace it", above.display(), metadata.uid()));
        }
        if others_write && !sticky {
            return Err(format!("other users may write to {}, and so replace it", above.display()));
        }
    }
    Ok(())
}

/// The content of the file at `path`, where no link is followed, if it belongs to this user: for files that decide what is trusted.
pub fn own_file(path: &Path) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if file.metadata().ok()?.uid() != geteuid().as_raw() {
        tracing::warn!("{} belongs to another user and is not used", path.display());
        return None;
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn precious_directories_are_known() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(precious(root.path()), None);
        assert_eq!(precious(&root.path().join("missing")), None);
        assert!(precious(Path::new("/")).unwrap().contains("root"));
        for home in [Path::new("/home"), Path::new("/root"), Path::new("/home/somebody")] {
            assert!(precious(home).unwrap().contains("home"), "{}", home.display());
        }
        assert!(precious(&env::home_dir().unwrap()).unwrap().contains("home"));
        assert_eq!(precious(&env::home_dir().unwrap().join(".cache/ggml")), None);
        fs::create_dir(root.path().join(".git")).unwrap();
        assert!(precious(root.path()).unwrap().contains(".git"));
    }

    #[test]
    fn directories_below_what_others_write_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let (shared, own) = (root.path().join("shared"), root.path().join("shared/own"));
        fs::create_dir_all(&own).unwrap();
        for (mode, expected) in [(0o755, true), (0o775, true), (0o777, false), (0o1777, true)] {
            fs::set_permissions(&shared, fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(check(&own).is_ok(), expected, "{mode:o}: {:?}", check(&own));
        }
        if geteuid().is_root() {
            std::os::unix::fs::chown(&shared, None, Some(1)).unwrap();
            fs::set_permissions(&shared, fs::Permissions::from_mode(0o775)).unwrap();
            assert!(check(&own).unwrap_err().contains("other users may write"));
        }
    }

    #[test]
    fn directories_others_could_replace_are_rejected() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("own");
        fs::create_dir(&own).unwrap();
        assert_eq!(check(&own), Ok(()));
        // Its own files are recognised by their owner.
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).unwrap();
        assert_eq!(check(&own), Ok(()));
        fs::write(own.join("file"), "").unwrap();
        assert_eq!(check(&own.join("file")), Err("it is not a directory".into()));
        if geteuid().is_root() {
            std::os::unix::fs::chown(&own, Some(1), None).unwrap();
            assert!(check(&own).unwrap_err().contains("belongs to user 1"));
            fs::create_dir(own.join("inner")).unwrap();
            assert!(check(&own.join("inner")).unwrap_err().contains("could replace it"));
        } else {
            assert!(check(Path::new("/usr")).unwrap_err().contains("belongs to user 0"));
        }
    }

    #[test]
    fn only_a_file_of_this_user_counts() {
        let folder = tempfile::tempdir().unwrap();
        let (path, link) = (folder.path().join("selftest.json"), folder.path().join("link.json"));
        fs::write(&path, "{}").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        assert_eq!(own_file(&path).as_deref(), Some(&b"{}"[..]));
        assert_eq!(own_file(&link), None);
        if geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(1), None).unwrap();
            assert_eq!(own_file(&path), None);
        }
    }
}
