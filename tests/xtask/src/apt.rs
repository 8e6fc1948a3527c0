//! Downloads Debian packages with the machine's own apt, into a private state.
//!
//! The testbed needs the current packages of Debian sid whatever the machine itself runs. apt does the download, the
//! dependency resolution and the signature check; its state, cache and source list are ours, so nothing on the system
//! changes and no root is needed. Proxies and certificates come from the machine's configuration, its hooks do not run.

use crate::process::{self, run_helper};
use crate::settings::AIE_TESTBED_MIRROR;
use anyhow::{Context, Result, bail, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(900);
const KEYRINGS: [&str; 2] =
    ["/usr/share/keyrings/debian-archive-keyring.gpg", "/usr/share/keyrings/debian-archive-keyring.pgp"];

/// What to do when Debian's packages of today are not what the tests need.
pub const EARLIER: &str = "to use the packages of an earlier day, set AIE_TESTBED_MIRROR to that day's archive, such as \
                           https://snapshot.debian.org/archive/debian/20261101T000000Z/";
/// Most packages that a message lists.
const LISTED: usize = 8;

/// A private apt state in one folder.
pub struct PrivateApt {
    dir: PathBuf,
    suites: Vec<String>,
}

#[derive(Debug)]
pub struct Package {
    pub name: String,
    pub version: String,
    /// Of the package file.
    pub bytes: u64,
}

impl PrivateApt {
    /// Prepares a state under `dir` with `suites` of `mirror` as sources, and reads their package lists. Packages that are
    /// `assumed` to be there are not fetched, though others depend on them.
    ///
    /// Debian marks `experimental` so that nothing is taken from it unless a version is requested.
    pub fn new(dir: &Path, mirror: &str, suites: &[&str], assumed: &[&str]) -> Result<Self> {
        let keyring = KEYRINGS.into_iter().find(|path| Path::new(path).exists());
        Self::of(dir, &source(keyring, mirror), suites, assumed)
    }

    /// The same; `source` is an archive as apt's list of sources has it, with options.
    pub fn of(dir: &Path, source: &str, suites: &[&str], assumed: &[&str]) -> Result<Self> {
        for folder in ["lists/partial", "cache/archives/partial", "etc"] {
            fs::create_dir_all(dir.join(folder))
                .with_context(|| format!("cannot create {}", dir.join(folder).display()))?;
        }
        // As far as this state knows nothing else is installed, so every dependency is fetched.
        fs::write(dir.join("status"), status(assumed, &architecture()?))?;
        let sources: String = suites.iter().map(|suite| format!("deb {source} {suite} main\n")).collect();
        fs::write(dir.join("etc/sources.list"), sources)?;
        let machine = run_helper(Command::new("apt-config").arg("dump"), LIMIT)?;
        let apt = Self { dir: dir.to_owned(), suites: suites.iter().map(|suite| (*suite).to_owned()).collect() };
        fs::write(apt.config(), private_config(&machine, dir))?;
        run_helper(apt.command("apt-get").args(["-qq", "update"]), LIMIT)
            .context("apt could not read the package lists")?;
        Ok(apt)
    }

    /// The versions the sources, or one suite of them, have of `package`, newest first; none if they do not have it.
    pub fn versions(&self, package: &str, suite: Option<&str>) -> Result<Vec<String>> {
        let listing = run_helper(self.command("apt-cache").args(["madison", package]), LIMIT);
        Ok(versions_in(&listing.context("apt could not list versions")?, suite))
    }

    /// The packages whose name begins with `prefix`, in no order.
    pub fn names(&self, prefix: &str) -> Result<Vec<String>> {
        let listing = run_helper(self.command("apt-cache").args(["pkgnames", prefix]), LIMIT);
        Ok(listing.context("apt could not list packages")?.lines().map(|line| line.trim().to_owned()).collect())
    }

    /// Errors unless the sources have all of these; a version may follow a name after `=`.
    pub fn require(&self, packages: &[&str]) -> Result<()> {
        // Patterns are left to apt.
        for package in packages.iter().filter(|package| !package.starts_with('?')) {
            let (name, version) =
                package.split_once('=').map_or((*package, None), |(name, version)| (name, Some(version)));
            let known = self.versions(name, None)?;
            let found = version.map_or(!known.is_empty(), |version| known.iter().any(|known| known == version));
            if !found {
                let mut similar = if known.is_empty() { self.names(stem(name))? } else { known };
                similar.sort();
                let available = match similar.len() {
                    1..=LISTED => format!("they have {}", similar.join(", ")),
                    _ => "it was removed or has another name".to_owned(),
                };
                bail!(
                    "Debian ({}) has no package {package}; {available}; put the new name into tests/xtask/src/testbed, or {EARLIER}",
                    self.suites.join(", ")
                );
            }
        }
        Ok(())
    }

    /// What apt would install for `packages`, by name and version, without what they recommend.
    pub fn plan(&self, packages: &[&str]) -> Result<Vec<(String, String)>> {
        self.plan_with(packages, "--no-install-recommends")
    }

    fn plan_with(&self, packages: &[&str], option: &str) -> Result<Vec<(String, String)>> {
        self.require(packages)?;
        let mut command = self.command("apt-get");
        command.args(["-q", "install", "--simulate", option]).args(packages);
        let finished = process::run(&mut command, LIMIT)?;
        ensure!(
            finished.success(),
            "Debian ({}) has packages that cannot be installed together: {}; where it is being rebuilt that passes in days; until then, \
             {EARLIER}\n{}\n{}",
            self.suites.join(", "),
            packages.join(", "),
            // apt explains on standard output what does not fit.
            finished.stdout.trim(),
            finished.last_lines(12)
        );
        Ok(planned(&finished.stdout))
    }

    /// Downloads one package without what it depends on, and unpacks it into `root`. A version may follow the name after
    /// `=`.
    pub fn unpack_alone(&self, package: &str, root: &Path) -> Result<Package> {
        self.require(&[package])?;
        let folder = tempfile::tempdir_in(&self.dir)?;
        run_helper(self.command("apt-get").args(["-qq", "download", package]).current_dir(&folder), LIMIT)
            .with_context(|| format!("apt could not download {package}"))?;
        let file = package_files(folder.path())?.pop();
        unpack(&file.with_context(|| format!("apt downloaded no file for {package}"))?, root)
    }

    /// Downloads `packages` and everything they depend on; returns the package files. A version may follow a name after
    /// `=`.
    pub fn download(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        self.download_with(packages, "--no-install-recommends")
    }

    /// The same with what they recommend, which apt installs with them where nothing else is said.
    pub fn download_recommended(&self, packages: &[&str]) -> Result<Vec<PathBuf>> {
        self.download_with(packages, "--install-recommends")
    }

    fn download_with(&self, packages: &[&str], option: &str) -> Result<Vec<PathBuf>> {
        self.plan_with(packages, option)?;
        let mut command = self.command("apt-get");
        command.args(["-qq", "install", "--download-only", "-y", option]).args(packages);
        run_helper(&mut command, LIMIT).context("apt could not download the packages")?;
        package_files(&self.dir.join("cache/archives"))
    }

    /// Gives the apt of `root` these sources, package lists and downloaded packages: it then installs them without a network.
    pub fn hand_over(&self, root: &Path) -> Result<()> {
        let copy = |from: &str, to: &str| -> Result<()> {
            fs::create_dir_all(root.join(to))?;
            let entries = fs::read_dir(self.dir.join(from))?.filter_map(Result::ok).map(|entry| entry.path());
            for file in entries.filter(|path| path.is_file()) {
                let place = root.join(to).join(file.file_name().unwrap_or_default());
                fs::copy(&file, &place).with_context(|| format!("cannot copy {}", file.display()))?;
            }
            Ok(())
        };
        copy("lists", "var/lib/apt/lists")?;
        copy("cache/archives", "var/cache/apt/archives")?;
        copy("etc", "etc/apt")
    }

    fn config(&self) -> PathBuf {
        self.dir.join("apt.conf")
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("APT_CONFIG", self.config()).env("LC_ALL", "C.UTF-8");
        command
    }
}

/// An archive with the options it needs, as apt's list of sources has it.
fn source(keyring: Option<&str>, mirror: &str) -> String {
    // The lists of an earlier day have expired, which is what was asked for.
    let past = mirror.contains("/archive/").then(|| "check-valid-until=no".to_owned());
    let options: Vec<String> = keyring.map(|path| format!("signed-by={path}")).into_iter().chain(past).collect();
    if options.is_empty() { mirror.to_owned() } else { format!("[{}] {mirror}", options.join(" ")) }
}

/// What names of similar packages begin with.
fn stem(name: &str) -> &str {
    let end = name.find(|character: char| character.is_ascii_digit()).or_else(|| name.find(['.', '-']));
    &name[..end.unwrap_or(name.len())]
}

/// The packages in apt's lines `Inst NAME (VERSION SUITE [ARCHITECTURE])`.
fn planned(plan: &str) -> Vec<(String, String)> {
    let lines = plan.lines().filter_map(|line| line.strip_prefix("Inst "));
    let packages = lines.filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        let version = rest.split_once('(')?.1.split_whitespace().next()?;
        Some((name.to_owned(), version.to_owned()))
    });
    packages.collect()
}

/// A status file with these packages, in a version no other package can find too old.
fn status(packages: &[&str], architecture: &str) -> String {
    let entry = |package: &&str| {
        format!(
            "Package: {package}\nStatus: install ok installed\nVersion: 9999\nArchitecture: {architecture}\n\
             Maintainer: none\nDescription: assumed\n\n"
        )
    };
    packages.iter().map(entry).collect()
}

fn package_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)?
        .filter_map(|entry| entry.ok().map(|entry| entry.path()))
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    files.sort();
    Ok(files)
}

/// The versions in lines `PACKAGE | VERSION | URI SUITE/COMPONENT ARCHITECTURE Packages`, each once; those of one suite if
/// there is one. apt lists the newest first.
fn versions_in(listing: &str, suite: Option<&str>) -> Vec<String> {
    let mut versions: Vec<String> = Vec::new();
    for line in listing.lines().filter(|line| line.ends_with(" Packages")) {
        let mut columns = line.split('|').map(str::trim);
        let (Some(version), Some(source)) = (columns.nth(1), columns.next()) else { continue };
        let found = source.split_whitespace().nth(1).and_then(|place| place.split('/').next());
        let wanted = suite.is_none_or(|suite| found == Some(suite));
        if wanted && !versions.iter().any(|known| known == version) {
            versions.push(version.to_owned());
        }
    }
    versions
}

/// The machine's settings without its hooks and paths, followed by ours.
fn private_config(machine: &str, dir: &Path) -> String {
    const DROPPED: [&str; 4] = ["APT::Update::", "DPkg::", "Dir", "RPM::"];
    let mut config: String = machine
        .lines()
        .filter(|line| !DROPPED.iter().any(|prefix| line.starts_with(prefix)))
        .flat_map(|line| [line, "\n"])
        .collect();
    let dir = dir.display();
    config.push_str(&format!(
        r#"Dir::State "{dir}";
Dir::State::status "{dir}/status";
Dir::State::Lists "{dir}/lists";
Dir::Cache "{dir}/cache";
Dir::Etc::Main "/dev/null";
Dir::Etc::Parts "/dev/null";
Dir::Etc::SourceList "{dir}/etc/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
Dir::Log "{dir}";
APT::Sandbox::User "root";
APT::Install-Recommends "0";
Acquire::Languages "none";
Acquire::Retries "3";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::IndexTargets::deb::CNF::DefaultEnabled "false";
Debug::NoLocking "1";
"#
    ));
    config
}

/// The Debian archive to use when a command is given none: that of [`AIE_TESTBED_MIRROR`], else the one this machine already uses.
///
/// Errors if apt is absent or none of its sources is a Debian archive.
pub fn mirror() -> Result<String> {
    if let Some(mirror) = AIE_TESTBED_MIRROR.get().filter(|value| !value.is_empty()) {
        let mirror = mirror.to_string_lossy().into_owned();
        ensure!(mirror.contains(':'), "{AIE_TESTBED_MIRROR} is `{mirror}`, which is no address; {EARLIER}");
        return Ok(mirror);
    }
    let targets = Command::new("apt-get")
        .args(["indextargets", "--format", "$(REPO_URI) $(ORIGIN)", "Created-By: Packages"])
        .output()
        .context(
            "the testbed is made of Debian packages and needs apt-get and dpkg-deb, which this machine does not have; \
             run on Debian or in a Debian container, or pass --testbed with a folder made on another machine",
        )?;
    let listing = String::from_utf8_lossy(&targets.stdout).into_owned();
    match mirror_in(&listing) {
        Some(mirror) => Ok(mirror),
        None => bail!(
            "none of this machine's apt sources is a Debian archive (asked `apt-get indextargets`; it lists: {}); \
             name one in {AIE_TESTBED_MIRROR}",
            if listing.trim().is_empty() { "nothing".to_owned() } else { listing.trim().replace('\n', ", ") }
        ),
    }
}

/// Picks the main archive out of `REPO_URI ORIGIN` lines. Before the first `apt-get update` the origin is unknown, and
/// the address alone must do.
fn mirror_in(listing: &str) -> Option<String> {
    let is_archive = |uri: &str| uri.trim_end_matches('/').ends_with("/debian");
    let lines = || listing.lines().filter_map(|line| line.split_whitespace().next().map(|uri| (uri, line)));
    lines()
        .find(|(uri, line)| is_archive(uri) && line.ends_with(" Debian"))
        .or_else(|| lines().find(|(uri, _)| is_archive(uri)))
        .map(|(uri, _)| uri.to_owned())
}

/// Debian's name for this machine's architecture (`amd64`, `arm64`, ...).
pub fn architecture() -> Result<String> {
    let text = run_helper(Command::new("dpkg").arg("--print-architecture"), LIMIT)
        .context("dpkg is needed to unpack the testbed's packages; on Debian it is always there")?;
    Ok(text.trim().to_owned())
}

pub fn unpack(package: &Path, root: &Path) -> Result<Package> {
    let show =
        run_helper(Command::new("dpkg-deb").args(["-W", "--showformat=${Package} ${Version}"]).arg(package), LIMIT)?;
    let (name, version) = show.trim().split_once(' ').with_context(|| format!("unexpected answer {show:?}"))?;
    fs::create_dir_all(root).with_context(|| format!("cannot create {}", root.display()))?;
    run_helper(Command::new("dpkg-deb").arg("-x").arg(package).arg(root), LIMIT)
        .with_context(|| format!("cannot unpack {name} {version}"))?;
    Ok(Package { name: name.to_owned(), version: version.to_owned(), bytes: fs::metadata(package)?.len() })
}

/// The numbers of a version such as `1:7.2.13+deb14`, which compare as versions do; the epoch is no part of them.
pub fn numbers(version: &str) -> Vec<u32> {
    let version = version.split_once(':').map_or(version, |(_, rest)| rest);
    version.split(|character: char| !character.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::by_origin("http://a/other/ X\nhttp://m.example/debian/ Debian\n", Some("http://m.example/debian/"))]
    #[case::before_update("http://m.example/debian \n", Some("http://m.example/debian"))]
    #[case::security_only("http://m.example/debian-security/ Debian\n", None)]
    #[case::other_system("http://m.example/ubuntu/ Ubuntu\n", None)]
    #[case::nothing("", None)]
    fn the_mirror_is_the_machines_own(#[case] listing: &str, #[case] expected: Option<&str>) {
        assert_eq!(mirror_in(listing).as_deref(), expected);
    }

    #[test]
    fn versions_are_read_in_order_and_once() {
        let listing = concat!(
            " libx | 7.2.4+dfsg-1~exp1 | http://m experimental/main amd64 Packages\n",
            " libx | 6.4.3+dfsg-5 | http://m sid/main amd64 Packages\n",
            " libx | 6.4.3+dfsg-5 | http://m forky/main amd64 Packages\n",
            "    x | 9 | http://m sid/main Sources\n"
        );
        assert_eq!(versions_in(listing, None), ["7.2.4+dfsg-1~exp1", "6.4.3+dfsg-5"]);
        assert_eq!(versions_in(listing, Some("sid")), ["6.4.3+dfsg-5"]);
        assert!(versions_in(listing, Some("stable")).is_empty());
        assert!(versions_in("", None).is_empty());
    }

    #[test]
    fn archives_of_earlier_days_may_have_expired() {
        let source = |mirror| source(Some("/k.gpg"), mirror);
        assert_eq!(source("http://m/debian"), "[signed-by=/k.gpg] http://m/debian");
        let past = source("https://s/archive/debian/20261101T000000Z/");
        assert_eq!(past, "[signed-by=/k.gpg check-valid-until=no] https://s/archive/debian/20261101T000000Z/");
        assert_eq!(super::source(None, "http://m/debian"), "http://m/debian");
    }

    #[test]
    fn a_plan_is_names_and_versions() {
        let plan = "NOTE: x\nInst libb1 (1:2-1 sid [amd64])\nInst a [1.0] (2.0 sid [all]) []\nConf libb1 (1:2-1 sid [amd64])\n";
        assert_eq!(planned(plan), [("libb1", "1:2-1"), ("a", "2.0")].map(|(a, b)| (a.to_owned(), b.to_owned())));
        assert_eq!(["libggml0-backend-rpc", "llama.cpp-tools", "busybox"].map(stem), ["libggml", "llama", "busybox"]);
    }

    #[rstest]
    #[case("7.2.4+dfsg-1~exp1", &[7, 2, 4, 1, 1])]
    #[case("1:6.4.3-5", &[6, 4, 3, 5])]
    #[case("0.9.4-dirty", &[0, 9, 4])]
    #[case("unknown", &[])]
    fn versions_are_numbers(#[case] version: &str, #[case] expected: &[u32]) {
        assert_eq!(numbers(version), expected);
    }

    #[test]
    fn hooks_and_paths_of_the_machine_are_dropped_and_proxies_kept() {
        let machine =
            "Acquire::http::Proxy \"http://p:1\";\nAPT::Update::Post-Invoke:: \"rm x\";\nDPkg::Y \"1\";\nDir \"/\";\n";
        let config = private_config(machine, Path::new("/t"));
        assert!(config.contains("http://p:1") && !config.contains("rm x") && !config.contains("Dir \"/\""));
        assert!(config.contains("Dir::State::status \"/t/status\""));
    }
}
