//! The crates of others that are linked into what is packed, as cargo knows them.

use crate::process::run_helper;
use crate::workspace;
use anyhow::{Context, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(600);
/// The packages of the workspace that are packed.
const PACKED: [&str; 3] = ["aie-ggml-bridge", "aie-ggml-cli", "aie-jit-iron"];

/// Sorted by name and version.
pub struct Crates(Vec<Crate>);

#[derive(Debug, Clone, Deserialize)]
pub struct Crate {
    id: String,
    pub name: String,
    pub version: String,
    /// An SPDX expression.
    pub license: Option<String>,
    manifest_path: PathBuf,
    /// None for those of the workspace.
    source: Option<String>,
    targets: Vec<Target>,
}

#[derive(Debug, Clone, Deserialize)]
struct Target {
    kind: Vec<String>,
}

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Crate>,
    resolve: Resolve,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// None for what is linked, and not only built with or tested with.
    kind: Option<String>,
}

impl Crate {
    /// The folder of its sources.
    pub fn folder(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new("/"))
    }

    /// A procedural macro runs in the compiler and is not linked.
    fn is_linked(&self) -> bool {
        !self.targets.iter().any(|target| target.kind.iter().any(|kind| kind == "proc-macro"))
    }
}

impl Crates {
    pub fn read(offline: bool) -> Result<Self> {
        let about = run_helper(workspace::cargo().arg("-vV"), LIMIT)?;
        let host = about.lines().find_map(|line| line.strip_prefix("host: ")).context("cargo names no host")?;
        let mut command = workspace::cargo();
        command.args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host]);
        command.args(offline.then_some("--offline"));
        let metadata: Metadata = serde_json::from_str(&run_helper(&mut command, LIMIT)?)?;
        Self::of(&metadata)
    }

    fn of(metadata: &Metadata) -> Result<Self> {
        let packages: BTreeMap<&str, &Crate> =
            metadata.packages.iter().map(|found| (found.id.as_str(), found)).collect();
        let nodes: BTreeMap<&str, &Node> = metadata.resolve.nodes.iter().map(|node| (node.id.as_str(), node)).collect();
        let is_packed = |found: &&Crate| found.source.is_none() && PACKED.contains(&found.name.as_str());
        let mut open: Vec<&str> = metadata.packages.iter().filter(is_packed).map(|found| found.id.as_str()).collect();
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        let mut linked = Vec::new();
        while let Some(id) = open.pop() {
            let found = packages.get(id).with_context(|| format!("cargo does not describe {id}"))?;
            if !seen.insert(id) || !found.is_linked() {
                continue;
            }
            if found.source.is_some() {
                linked.push((*found).clone());
            }
            let dependencies = nodes.get(id).into_iter().flat_map(|node| &node.deps);
            let used = dependencies.filter(|dependency| dependency.dep_kinds.iter().any(|kind| kind.kind.is_none()));
            open.extend(used.map(|dependency| dependency.pkg.as_str()));
        }
        linked.sort_by(|left, right| (&left.name, &left.version).cmp(&(&right.name, &right.version)));
        Ok(Self(linked))
    }

    pub fn iter(&self) -> impl Iterator<Item = &Crate> {
        self.0.iter()
    }

    /// The folders that have crates' folders in them.
    pub fn folders(&self) -> impl Iterator<Item = &Path> {
        self.0.iter().filter_map(|found| found.folder().parent()).collect::<BTreeSet<_>>().into_iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_linked_counts() {
        let package = |name: &str, source: &str, kind: &str| {
            format!(
                r#"{{"id":"{name}","name":"{name}","version":"1.0.0","license":"MIT","source":{source},
                    "manifest_path":"/crates/{name}-1.0.0/Cargo.toml","targets":[{{"kind":["{kind}"]}}]}}"#
            )
        };
        let needs = |name: &str, kind: &str| format!(r#"{{"pkg":"{name}","dep_kinds":[{{"kind":{kind}}}]}}"#);
        let text = format!(
            r#"{{"packages":[{},{},{},{},{}],"resolve":{{"nodes":[
                {{"id":"aie-ggml-bridge","deps":[{},{},{}]}},{{"id":"used","deps":[{}]}}]}}}}"#,
            package("aie-ggml-bridge", "null", "lib"),
            package("used", "\"registry\"", "lib"),
            package("macros", "\"registry\"", "proc-macro"),
            package("tests", "\"registry\"", "lib"),
            package("deeper", "\"registry\"", "lib"),
            needs("used", "null"),
            needs("macros", "null"),
            needs("tests", "\"dev\""),
            needs("deeper", "null"),
        );
        let crates = Crates::of(&serde_json::from_str(&text).unwrap()).unwrap();
        assert_eq!(crates.iter().map(|found| found.name.as_str()).collect::<Vec<_>>(), ["deeper", "used"]);
        assert_eq!(crates.folders().collect::<Vec<_>>(), [Path::new("/crates")]);
    }
}
