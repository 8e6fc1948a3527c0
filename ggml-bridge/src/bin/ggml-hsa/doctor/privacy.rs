//! What must not be in a report that is published: the user's name and directory.

use super::finding::Finding;
use super::machine::Machine;
use aie_driver_xdna::discovery::Process;
use aie_driver_xdna::discovery::machine::ThisProcess;
use aie_jit_iron::settings::HOME;

/// Takes names of the user out of texts.
#[derive(Debug)]
pub struct Redactor {
    home: Option<String>,
    user: String,
}

impl Redactor {
    /// For the user of `machine`.
    pub fn of(machine: &Machine) -> Self {
        Self::new(machine.environment.text(&HOME), ThisProcess.identity().user)
    }

    fn new(home: Option<String>, user: String) -> Self {
        // Of these, nothing can be learned, and `/` is in every path.
        let home = home.map(|home| home.trim_end_matches('/').to_owned()).filter(|home| home.len() > 1);
        Self { home, user }
    }

    /// `finding` without them.
    pub fn clean(&self, finding: Finding) -> Finding {
        Finding { text: self.text(&finding.text), mend: finding.mend.map(|mend| self.text(&mend)), ..finding }
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

#[cfg(test)]
mod tests {
    use super::Redactor;
    use rstest::rstest;

    #[rstest]
    #[case("/home/ada/.local/lib/libggml-hsa.so", "~/.local/lib/libggml-hsa.so")]
    #[case("in /data/ada, and /data/ada/x", "in /data/$USER, and /data/$USER/x")]
    #[case("/opt/adaptive/lib and ada", "/opt/adaptive/lib and ada")]
    fn paths_do_not_name_the_user(#[case] text: &str, #[case] expected: &str) {
        assert_eq!(Redactor::new(Some("/home/ada/".into()), "ada".into()).text(text), expected);
    }

    #[test]
    fn a_home_that_says_nothing_is_left() {
        assert_eq!(Redactor::new(Some("/".into()), "root".into()).text("/root/x"), "/root/x");
    }
}
