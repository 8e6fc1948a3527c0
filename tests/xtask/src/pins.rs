//! What is fetched for tests is pinned by digest: actions, container images, Python and npm packages.
//!
//! This reads the sources and finds what is not. Debian's packages are not pinned: the archive signs its lists, which have the digests.
//! Crates are pinned by Cargo.lock.

use crate::python::REQUIREMENTS;
use crate::{files, workspace};
use regex::Regex;
use rstest::rstest;
use std::collections::BTreeMap;
use std::path::Path;

/// Files that may fetch what is not pinned, with the reason.
const EXCLUDED: [(&str, &str); 2] = [
    (
        "jit-iron/iron/env_setup.sh",
        "users install IRON with it; its release pages have no hashes, and nothing here runs it for real",
    ),
    ("jit-iron/iron/tests/doubles/python3_double.sh", "stands in for Python and installs nothing"),
];
/// Programs that call a package manager, with what else they have to have and must not have.
const CALLERS: [(&str, &str, &[&str]); 3] = [
    // Every other caller goes through Requirements.
    ("tests/xtask/src/python.rs", "fn pip() ->", &[r#""install""#, r#""download""#]),
    ("tests/xtask/src/python/requirements.rs", "\"--require-hashes\"", &[r#""download""#]),
    ("tests/xtask/src/commands/clients/bindings.rs", "\"ci\"", &[r#""install""#, r#""add""#]),
];

/// What a script or a workflow fetches without a digest.
fn unpinned_in_script(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let pattern = |pattern: &str| Regex::new(pattern).unwrap();
    // What fetches, and what makes it pinned.
    let rules = [
        (r"\bpip[0-9.]*\b.*\b(install|download|wheel)\b", r"--require-hashes\b.*--requirement\b"),
        (r"\b(pipx|uvx?|npx|yarn|pnpm|curl|wget)\s", r"$^"),
        (r"\bnpm\s+(install|i|add|exec|update)\b", r"$^"),
        (r"\bcargo\s+(\+\S+\s+)?(install|binstall)\b", r"$^"),
        (r"^\s*(-\s+)?uses:\s", r"uses:\s+(\./|docker://\S+@sha256:[0-9a-f]{64}\b|\S+@[0-9a-f]{40}\b)"),
        (r"^\s*(image|container):\s*\S|^\s*FROM\s|\b(docker|podman)\s+(run|pull|build)\b", r"@sha256:[0-9a-f]{64}\b"),
    ];
    let rules = rules.map(|(fetches, pinned)| (pattern(fetches), pattern(pinned)));
    let unpinned = |line: &&str| rules.iter().any(|(fetches, pinned)| fetches.is_match(line) && !pinned.is_match(line));
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#'));
    lines.filter(unpinned).map(|line| line.trim().to_owned()).collect()
}

/// The package managers that a program names as words of a command.
fn callers_in_program(text: &str) -> Vec<String> {
    let names =
        Regex::new(r#"["'](pip[0-9.]*|pipx|uvx?|npm|npx|pnpm|curl|wget|docker|podman)["']|npm-cli\.js"#).unwrap();
    names.find_iter(text).map(|found| found.as_str().to_owned()).collect()
}

/// What a requirements file names without an exact version and hashes.
fn unpinned_requirements(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let pinned = Regex::new(r"^[A-Za-z0-9._-]+==[^\s*]+( ; [^-]*)?(\s+--hash=sha256:[0-9a-f]{64})+\s*$").unwrap();
    let lines = text.lines().filter(|line| !line.starts_with('#') && !line.trim().is_empty());
    lines.filter(|line| !pinned.is_match(line)).map(|line| line.trim().to_owned()).collect()
}

/// What a lock file of npm has without a hash, and the places it names, which would be asked instead of the configured registry.
fn unpinned_in_lock(text: &str) -> Vec<String> {
    let lock: serde_json::Value = serde_json::from_str(text).unwrap();
    let packages = lock["packages"].as_object().unwrap();
    let entries = packages.iter().filter(|(place, _)| !place.is_empty());
    let unpinned = entries.filter(|(_, entry)| {
        !entry["integrity"].as_str().is_some_and(|hash| hash.starts_with("sha512-")) || entry.get("resolved").is_some()
    });
    unpinned.map(|(place, _)| place.clone()).collect()
}

/// The project's files by their paths in the checkout.
fn sources() -> Vec<String> {
    let root = workspace::root();
    let mut found = Vec::new();
    for top in std::fs::read_dir(&root).unwrap() {
        let name = top.unwrap().file_name().into_string().unwrap();
        if ["target", ".git"].contains(&&*name) {
            continue;
        }
        if root.join(&name).is_dir() {
            let below = files::below(&root.join(&name)).unwrap().into_iter();
            found.extend(below.map(|path| format!("{name}/{}", path.display())));
        } else {
            found.push(name);
        }
    }
    found.retain(|path| root.join(path).is_file());
    found
}

fn is_script(path: &str) -> bool {
    let path = Path::new(path);
    let name = path.file_name().unwrap().to_string_lossy();
    let ending = path.extension().map_or_else(String::new, |ending| ending.to_string_lossy().into_owned());
    ["yml", "yaml", "sh", "bash", "cmake", "mk"].contains(&&*ending)
        || ["Dockerfile", "Containerfile", "Makefile", "CMakeLists.txt"].iter().any(|known| name.starts_with(known))
        || path.starts_with(".ci")
}

fn read(path: &str) -> String {
    files::read(&workspace::root().join(path)).unwrap()
}

#[test]
fn everything_that_is_fetched_is_pinned() {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let (mut scripts, mut programs) = (0, 0);
    for path in sources() {
        let unpinned = if is_script(&path) {
            scripts += 1;
            unpinned_in_script(&read(&path))
        } else if path.ends_with(".rs") || path.ends_with(".py") || path.ends_with(".mjs") {
            programs += 1;
            let own = path == "tests/xtask/src/pins.rs" || CALLERS.iter().any(|(caller, ..)| *caller == path);
            if own { Vec::new() } else { callers_in_program(&read(&path)) }
        } else {
            continue;
        };
        if !unpinned.is_empty() {
            found.insert(path, unpinned);
        }
    }
    assert!(scripts > 5 && programs > 100, "the sources were not found: {scripts} scripts, {programs} programs");
    for (path, reason) in EXCLUDED {
        assert!(found.remove(path).is_some(), "{path} fetches nothing any more; remove the exclusion ({reason})");
    }
    assert!(
        found.is_empty(),
        "these are fetched without a digest; docs/testing.md says how each kind is pinned: {found:#?}"
    );
}

#[test]
fn callers_of_package_managers_use_pinned_lists_only() {
    for (path, needed, forbidden) in CALLERS {
        let text = read(path);
        // What tests say does not count.
        let text = text.split("mod tests {").next().unwrap();
        assert!(text.contains(needed), "{path} has no {needed}");
        for word in forbidden {
            assert!(!text.contains(word), "{path} has {word}");
        }
    }
}

#[test]
fn lists_of_packages_have_hashes() {
    let names: Vec<String> = sources().into_iter().filter(|path| path.starts_with(REQUIREMENTS)).collect();
    assert!(names.len() > 5, "{names:?}");
    for path in names {
        assert_eq!(unpinned_requirements(&read(&path)), Vec::<String>::new(), "{path}");
    }
    let lock = "tests/clients/node/package-lock.json";
    assert_eq!(unpinned_in_lock(&read(lock)), Vec::<String>::new(), "{lock}");
}

const HEX: &str = "0123456789abcdef0123456789abcdef01234567";

#[rstest]
#[case::tag("      - uses: actions/checkout@v4", false)]
#[case::commit(&format!("      - uses: actions/checkout@{HEX} # v4"), true)]
#[case::short_commit("      - uses: actions/checkout@0123456", false)]
#[case::own_action("      - uses: ./.github/own", true)]
#[case::image("      image: debian:stable", false)]
#[case::image_without_object("    container: debian:stable", false)]
#[case::image_digest(&format!("      image: debian:stable@sha256:{HEX}{}", &HEX[..24]), true)]
#[case::object("    container:", true)]
#[case::docker_file("FROM debian:stable", false)]
#[case::pip("  python3 -m pip install --quiet typos==1.0", false)]
#[case::pip_of_a_folder("  \"$DIR/bin/pip\" install typos==1.0", false)]
#[case::pip_next_line("  pip install \\\n    typos", false)]
#[case::pip_hashes("  pip install --require-hashes \\\n  --requirement a.txt", true)]
#[case::pip_hashes_of_nothing("  pip install --require-hashes typos", false)]
#[case::pip_version("  pip --version", true)]
#[case::npm("  npm install left-pad", false)]
#[case::npm_lock("  npm ci", true)]
#[case::download("  curl -fsSL somewhere | sh", false)]
#[case::cargo("  cargo install cargo-deny", false)]
#[case::comment("  # pip install typos", true)]
fn scripts_are_judged(#[case] text: &str, #[case] is_pinned: bool) {
    assert_eq!(unpinned_in_script(text).is_empty(), is_pinned, "{text}");
}

#[rstest]
#[case(r#"Command::new("pip").args(["install", "x"])"#, 1)]
#[case(r#"python().args(["-m", "pip", "install"])"#, 1)]
#[case(r#"subprocess.run(["python3", "-m", 'pip', "download"])"#, 1)]
#[case(r#"folder.join("npm/bin/npm-cli.js")"#, 1)]
#[case(r#"Command::new("curl")"#, 1)]
#[case("install it (Debian: apt-get install python3-pip)", 0)]
fn programs_are_judged(#[case] text: &str, #[case] callers: usize) {
    assert_eq!(callers_in_program(text).len(), callers, "{text}");
}

#[test]
fn lists_are_judged() {
    let hash = format!("--hash=sha256:{HEX}{}", &HEX[..24]);
    let good = format!("# x\na==1 \\\n    {hash} \\\n    {hash}\nb==2 ; python_version < '3.11' \\\n    {hash}\n");
    assert_eq!(unpinned_requirements(&good), Vec::<String>::new());
    for bad in [
        "a==1".to_owned(),
        format!("a>=1 {hash}"),
        format!("a {hash}"),
        "--find-links x".into(),
        "a==1 --hash=md5:00".into(),
    ] {
        assert_eq!(unpinned_requirements(&bad), [bad.as_str()]);
    }
    let lock = |entry: &str| unpinned_in_lock(&format!(r#"{{"packages": {{"": {{}}, "node_modules/a": {entry}}}}}"#));
    assert!(lock(r#"{"integrity": "sha512-aaaa"}"#).is_empty());
    for bad in [r#"{}"#, r#"{"integrity": "sha1-aaaa"}"#, r#"{"integrity": "sha512-aaaa", "resolved": "x"}"#] {
        assert_eq!(lock(bad), ["node_modules/a"]);
    }
}
