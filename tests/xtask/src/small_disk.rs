//! Programs with a folder on a disk that is soon full.

use crate::process::{is_superuser, prefixed};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

/// Mounts the disk and becomes the program, in a mount namespace that ends with it.
const MOUNT: &str = r#"mount -t tmpfs -o "size=$1k" tmpfs "$2" && shift 2 && exec "$@""#;

/// The same command with an empty disk of so many KiB at `folder`, which other processes do not see. Needs util-linux, and the rights to make
/// a mount namespace, as the clean root does.
pub fn command(command: &Command, folder: &Path, kib: usize) -> Command {
    let mut line: Vec<OsString> = vec!["unshare".into()];
    if !is_superuser() {
        line.push("--map-root-user".into());
    }
    line.extend(["--mount", "sh", "-c", MOUNT, "sh"].map(OsString::from));
    line.extend([kib.to_string().into(), folder.into()]);
    prefixed(line, command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_disk_is_full_after_its_size() {
        let folder = tempfile::tempdir().unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", "head -c 40960 /dev/zero >\"$FOLDER/a\" && head -c 40960 /dev/zero >\"$FOLDER/b\""]);
        shell.env("FOLDER", folder.path());
        let output = command(&shell, folder.path(), 64).output().expect("unshare of util-linux is installed");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && text.contains("No space left on device"), "{text}");
        assert_eq!(folder.path().read_dir().unwrap().count(), 0);
    }
}
