//! What must not be in a report that is published: the user's name and directory; in a record also the machine's name and files.

use super::finding::Finding;
use super::machine::Machine;
use aie_driver_xdna::discovery::Process;
use aie_driver_xdna::discovery::machine::ThisProcess;
use aie_jit_iron::settings::HOME;
use ggml_hsa::settings::ALL;
use std::cmp::Reverse;
use std::path::PathBuf;

/// Folders of the system, whose names say nothing of the user. What else is below `/` may.
const SYSTEM: [&str; 9] = ["/dev", "/sys", "/proc", "/usr", "/lib", "/lib64", "/bin", "/opt/rocm", "/opt/xilinx"];

/// What stands for a path that is not shown.
const HIDDEN: &str = "PATH";

/// Takes names of the user out of texts.
#[derive(Debug)]
pub struct Redactor {
    home: Option<String>,
    user: String,
    /// The machine's name.
    host: String,
    /// Paths of the user, the longest first.
    paths: Vec<String>,
}

impl Redactor {
    /// For the user of `machine`.
    pub fn of(machine: &Machine) -> Self {
        let environment = &machine.environment;
        let values = ALL.iter().flat_map(|settings| settings.variables).filter_map(|name| environment.get(name));
        let listed = values.flat_map(|value| std::env::split_paths(value).chain([value.into()]).collect::<Vec<_>>());
        let here = std::env::current_dir().into_iter();
        let paths = listed.chain(here).chain(machine.programs.clone()).chain(machine.library.clone());
        let host = machine.text("/proc/sys/kernel/hostname").unwrap_or_default();
        Self::new(environment.text(&HOME), ThisProcess.identity().user, host, paths)
    }

    fn new(home: Option<String>, user: String, host: String, paths: impl Iterator<Item = PathBuf>) -> Self {
        // Of these, nothing can be learned, and `/` is in every path.
        let home = home.map(|home| home.trim_end_matches('/').to_owned()).filter(|home| home.len() > 1);
        let is_telling = |path: &String| path.len() > 1 && path.contains('/') && !is_of_the_system(path);
        let mut paths: Vec<String> = paths.map(|path| path.to_string_lossy().into_owned()).filter(is_telling).collect();
        paths.sort_by_key(|path| Reverse(path.len()));
        Self { home, user, host, paths }
    }

    /// `text` for a file that is published: also without the machine's name, and without names of folders and files that are not the
    /// system's.
    pub fn publish(&self, text: &str) -> String {
        let known = self.paths.iter().fold(text.to_owned(), |text, path| text.replace(path.as_str(), HIDDEN));
        let text = without_paths(&self.text(&known));
        let text = without_word(&text, &self.host, "$HOST");
        if self.user == "root" { text } else { without_word(&text, &self.user, "$USER") }
    }

    /// `finding` without them.
    pub fn clean(&self, finding: Finding) -> Finding {
        Finding { text: self.text(&finding.text), fix: finding.fix.map(|fix| self.text(&fix)), ..finding }
    }

    /// The user's directory becomes `~`, a folder that is called like the user `$USER`.
    fn text(&self, text: &str) -> String {
        let text = match &self.home {
            Some(home) => text.replace(home, "~"),
            None => text.to_owned(),
        };
        if self.user.is_empty() || self.user == "root" {
            return text;
        }
        let mut parts = text.split('/');
        let mut clean = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            clean.push('/');
            match part.strip_prefix(&self.user) {
                Some(rest) if !rest.starts_with(|c: char| c.is_alphanumeric() || "-_.".contains(c)) => {
                    clean.push_str("$USER");
                    clean.push_str(rest);
                }
                _ => clean.push_str(part),
            }
        }
        clean
    }
}

fn is_of_the_system(path: &str) -> bool {
    let below = |folder: &&str| path.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    SYSTEM.iter().any(below) && !path.contains("..")
}

/// `text` without absolute paths outside of the system's folders, and those in the user's directory.
fn without_paths(text: &str) -> String {
    let ends = |c: char| c.is_whitespace() || "`'\",;()".contains(c);
    let mut clean = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['/', '~']) {
        let (before, from) = rest.split_at(at);
        clean.push_str(before);
        let starts =
            before.chars().next_back().or(clean.chars().next_back()).is_none_or(|c| ends(c) || "=:".contains(c));
        let length = from.find(ends).unwrap_or(from.len());
        let (path, after) = from.split_at(if starts { length } else { 1 });
        // A colon behind it belongs to the sentence. `//` begins the rest of a URI.
        let bare = path.trim_end_matches([':', '.']);
        match starts && bare.len() > 1 && !bare.starts_with("//") && !is_of_the_system(bare) {
            true => clean.push_str(&format!("{HIDDEN}{}", &path[bare.len()..])),
            false => clean.push_str(path),
        }
        rest = after;
    }
    clean + rest
}

/// `text` with `instead` for `word` where it stands alone.
fn without_word(text: &str, word: &str, instead: &str) -> String {
    if word.is_empty() {
        return text.to_owned();
    }
    let mut clean = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(word) {
        let (before, from) = rest.split_at(at);
        let after = &from[word.len()..];
        let alone = !before.ends_with(char::is_alphanumeric) && !after.starts_with(char::is_alphanumeric);
        clean.push_str(before);
        clean.push_str(if alone { instead } else { word });
        rest = after;
    }
    clean + rest
}

#[cfg(test)]
mod tests {
    use super::Redactor;
    use rstest::rstest;

    fn of(home: &str, user: &str) -> Redactor {
        let paths = ["/data/ada's work/lib", "lovelace/build"].map(Into::into);
        Redactor::new(Some(home.into()), user.into(), "analytical".into(), paths.into_iter())
    }

    #[rstest]
    #[case("/home/ada/.local/lib/libggml-hsa.so, for `ggml-hsa run`", "PATH, for `ggml-hsa run`")]
    #[case("cannot find it; tried /data/ada's work/lib, lovelace/build", "cannot find it; tried PATH, PATH")]
    #[case("GGML_HSA_KERNEL_DIR=/srv/secret:/srv/more", "GGML_HSA_KERNEL_DIR=PATH")]
    #[case("`/srv/secret`: it cannot be read", "`PATH`: it cannot be read")]
    #[case("/srv/secret: it cannot be read", "PATH: it cannot be read")]
    #[case("~/models/secret.gguf", "PATH")]
    #[case("/usr/lib/../../srv/secret", "PATH")]
    #[case(
        "/dev/accel/accel0, /lib/firmware and amdnpu/17f0_10",
        "/dev/accel/accel0, /lib/firmware and amdnpu/17f0_10"
    )]
    #[case("xdna://pci-0000:c6:00.1 works", "xdna://pci-0000:c6:00.1 works")]
    #[case("Linux 6.18.2-analytical-ada", "Linux 6.18.2-$HOST-$USER")]
    #[case("adaptive analytically", "adaptive analytically")]
    fn what_is_published_has_no_names_of_the_user(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(of("/home/ada", "ada").publish(text), expected);
    }

    #[rstest]
    #[case("/home/ada/.local/lib/libggml-hsa.so", "~/.local/lib/libggml-hsa.so")]
    #[case("in /data/ada, and /data/ada/x", "in /data/$USER, and /data/$USER/x")]
    #[case("/opt/adaptive/lib and ada", "/opt/adaptive/lib and ada")]
    fn paths_do_not_name_the_user(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(of("/home/ada/", "ada").text(text), expected);
    }

    #[test]
    fn a_home_that_says_nothing_is_left() {
        assert_eq!(of("/", "root").text("/root/x"), "/root/x");
    }
}
