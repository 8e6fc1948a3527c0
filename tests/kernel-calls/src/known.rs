//! Differences that are known, each with its reason.

use crate::compare::Difference;
use serde::Deserialize;

/// A file of known differences.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Known {
    /// The entries.
    #[serde(default)]
    pub difference: Vec<Entry>,
}

/// Differences that have one reason. What is not given matches anything.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// The script; several when it ends with `*`.
    pub script: String,
    /// The call.
    pub call: Option<String>,
    /// A piece of what the call asks, as a difference shows it.
    pub about: Option<String>,
    /// `result`, `made`, or a field.
    pub field: Option<String>,
    /// The simulation's answer.
    pub simulated: Option<String>,
    /// The kernel's.
    pub real: Option<String>,
    /// Kernels that it is about: `7.2`, or `7.2 npu1`. All when there is none.
    #[serde(default)]
    pub kernels: Vec<String>,
    /// Why it is as it is.
    pub reason: String,
}

impl Entry {
    fn matches(&self, difference: &Difference) -> bool {
        let script = match self.script.strip_suffix('*') {
            Some(start) => difference.script.starts_with(start),
            None => difference.script == self.script,
        };
        let is = |wanted: &Option<String>, found: &str| wanted.as_deref().is_none_or(|wanted| wanted == found);
        script
            && is(&self.call, &difference.call)
            && self.about.as_deref().is_none_or(|about| difference.about.contains(about))
            && is(&self.field, &difference.field)
            && is(&self.simulated, difference.first.trim_matches('"'))
            && is(&self.real, difference.second.trim_matches('"'))
    }

    fn is_for(&self, kernel: &str) -> bool {
        let whole =
            |name: &String| name == kernel || kernel.split_once(' ').is_some_and(|(version, _)| version == name);
        self.kernels.is_empty() || self.kernels.iter().any(whole)
    }

    /// The entry in messages.
    pub fn name(&self) -> String {
        let parts = [Some(&self.script), self.call.as_ref(), self.about.as_ref(), self.field.as_ref()];
        parts.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}

/// What is left of differences when the known ones are taken out.
#[derive(Debug)]
pub struct Judged<'a> {
    /// Those that no entry explains.
    pub unknown: Vec<Difference>,
    /// Those that an entry explains, with the entry.
    pub known: Vec<(Difference, &'a Entry)>,
    /// Entries that explain nothing any more.
    pub stale: Vec<&'a Entry>,
}

impl Known {
    /// Reads a file.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let known: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        match known.difference.iter().find(|entry| entry.reason.trim().is_empty()) {
            Some(entry) => Err(format!("the entry `{}` has no reason", entry.name())),
            None => Ok(known),
        }
    }

    /// Judges differences between the simulation and the kernel with this name.
    pub fn judge(&self, kernel: &str, differences: Vec<Difference>) -> Judged<'_> {
        let entries: Vec<&Entry> = self.difference.iter().filter(|entry| entry.is_for(kernel)).collect();
        let mut judged = Judged { unknown: Vec::new(), known: Vec::new(), stale: Vec::new() };
        let mut used = vec![false; entries.len()];
        for difference in differences {
            // All entries that match are in use; the first gives the reason.
            let matching: Vec<usize> = (0..entries.len()).filter(|i| entries[*i].matches(&difference)).collect();
            matching.iter().for_each(|index| used[*index] = true);
            match matching.first() {
                Some(first) => judged.known.push((difference, entries[*first])),
                None => judged.unknown.push(difference),
            }
        }
        judged.stale = entries.into_iter().zip(used).filter(|(_, used)| !used).map(|(entry, _)| entry).collect();
        judged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn difference(script: &str, field: &str, second: &str) -> Difference {
        Difference {
            script: script.to_owned(),
            step: 1,
            call: "SYNC_BO".to_owned(),
            about: "direction=1 handle=bo3".to_owned(),
            field: field.to_owned(),
            first: "ok".to_owned(),
            second: second.to_owned(),
        }
    }

    const FILE: &str = r#"
        [[difference]]
        script = "bo: *"
        call = "SYNC_BO"
        about = "direction=1"
        real = "EINVAL"
        reason = "only debug buffers come back"
    "#;

    #[test]
    fn entries_explain_what_they_match() {
        let known = Known::parse(FILE).unwrap();
        let found = vec![
            difference("bo: sync", "result", "EINVAL"),
            difference("heap: sync", "result", "EINVAL"),
            difference("bo: sync", "result", "EIO"),
        ];
        let judged = known.judge("7.2", found);
        assert_eq!((judged.known.len(), judged.unknown.len(), judged.stale.len()), (1, 2, 0));
        assert_eq!(judged.known[0].1.reason, "only debug buffers come back");
    }

    #[test]
    fn an_entry_that_explains_nothing_is_stale_where_it_is_meant() {
        let mut known = Known::parse(FILE).unwrap();
        assert_eq!(known.judge("7.2", Vec::new()).stale[0].name(), "bo: *, SYNC_BO, direction=1");
        known.difference[0].kernels = vec!["7.3".to_owned()];
        assert!(known.judge("7.2", Vec::new()).stale.is_empty());
        assert_eq!(known.judge("7.3 npu1", Vec::new()).stale.len(), 1);
    }

    #[test]
    fn entries_need_reasons_and_right_names() {
        assert!(Known::parse("[[difference]]\nscript = \"a\"\nreason = \" \"").unwrap_err().contains("no reason"));
        assert!(Known::parse("[[difference]]\nscript = \"a\"\nreal_ = \"b\"\nreason = \"c\"").is_err());
        assert!(Known::parse("").unwrap().difference.is_empty());
    }
}
