//! The machine that is examined: a tree of files, a process, settings, and a way to open devices.

use super::opening::Opening;
use aie_driver_xdna::discovery::machine::{Identity, Owner, ThisProcess};
use aie_driver_xdna::discovery::{self, Process, Survey};
use aie_hal::arch::ArchError;
use aie_hal::environment::Problem;
use aie_hal::settings::AIE_HAL_ARCH_PATH;
use aie_hal::{ArchRegistry, Environment};
use ggml_hsa::config::Config;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Groups that distributions give to device nodes. Names of others may say something of the user.
const DEVICE_GROUPS: [&str; 3] = ["render", "video", "root"];

/// A machine, seen by a process with an environment.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Where its files are: `/`, or another folder in tests. Paths in settings and messages are below it.
    pub root: PathBuf,
    /// The process that wants to use the NPU.
    pub process: Arc<dyn Process>,
    /// Its environment.
    pub environment: Environment,
    /// The settings in the environment.
    pub config: Config,
    /// What is wrong with the settings.
    pub problems: Vec<Problem>,
    /// The generations that are known.
    pub arches: ArchRegistry,
    /// The folder of this program, below the root.
    pub programs: Option<PathBuf>,
    /// The library that the user names.
    pub library: Option<PathBuf>,
    /// Opens what is requested; `None` when nothing is to be opened.
    pub open: Option<fn(&Self) -> Vec<Opening>>,
}

impl Machine {
    /// This machine, on which nothing is opened.
    pub fn this(library: Option<PathBuf>) -> Self {
        let (arches, problems) = ArchRegistry::from_environment();
        let program = std::env::current_exe().ok();
        let of_arches = |cause: &ArchError| Problem { variable: AIE_HAL_ARCH_PATH.name, text: cause.to_string() };
        let machine = Self::new("/".into(), Arc::new(Anonymous), Environment::process().clone(), arches);
        Self {
            problems: machine.problems.into_iter().chain(problems.iter().map(of_arches)).collect(),
            programs: program.and_then(|program| program.parent().map(Path::to_path_buf)),
            library,
            ..machine
        }
    }

    /// A machine with its files in `root`.
    pub fn new(root: PathBuf, process: Arc<dyn Process>, environment: Environment, arches: ArchRegistry) -> Self {
        let (mut config, problems) = Config::read(&environment);
        // An examination empties no cache.
        config.cache_clear = false;
        Self { root, process, environment, config, problems, arches, programs: None, library: None, open: None }
    }

    /// Where the file `path` of the machine is.
    pub fn file(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The text of a file without white space around it; `None` when it cannot be read.
    pub fn text(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.file(path)).ok().map(|text| text.trim().to_owned())
    }

    /// The names in a folder, sorted; none when it cannot be read.
    pub fn names(&self, folder: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.file(folder)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The devices of the machine, as the driver looks at them.
    pub fn devices(&self) -> discovery::Machine {
        discovery::Machine { sysfs: self.file("/sys"), dev: self.file("/dev"), process: Arc::clone(&self.process) }
    }

    /// The NPUs and what is in their way.
    pub fn survey(&self) -> Survey {
        discovery::survey(&self.devices(), &self.arches, self.config.route)
    }

    /// `major.minor` of the running kernel.
    pub fn kernel(&self) -> Option<(u32, u32)> {
        let release = self.text("/proc/sys/kernel/osrelease")?;
        let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|digits| digits.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    }

    /// Whether the kernel was started with `option`, a whole word.
    pub fn booted_with(&self, option: &str) -> bool {
        self.text("/proc/cmdline").is_some_and(|line| line.split_whitespace().any(|word| word == option))
    }
}

/// This process, without names of the user: what it says may be published.
#[derive(Debug)]
struct Anonymous;

impl Process for Anonymous {
    fn may_use(&self, node: &Path) -> io::Result<()> {
        ThisProcess.may_use(node)
    }

    fn owner(&self, node: &Path) -> io::Result<Owner> {
        let me = ThisProcess.identity().user;
        let owner = ThisProcess.owner(node)?;
        let own = |name: String| if name == me && name != "root" { "$USER".to_owned() } else { name };
        Ok(Owner { user: own(owner.user), group: own(owner.group), ..owner })
    }

    fn identity(&self) -> Identity {
        let mut identity = ThisProcess.identity();
        identity.groups.retain(|group| DEVICE_GROUPS.contains(&group.as_str()));
        Identity { user: "$USER".to_owned(), ..identity }
    }

    fn lockable_bytes(&self) -> Option<u64> {
        ThisProcess.lockable_bytes()
    }
}
