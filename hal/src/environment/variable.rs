//! What is known of one variable.

use std::fmt;

/// A variable of the environment, as the [table](super::table) declares it. It prints as its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Variable {
    pub(super) name: &'static str,
    pub(super) group: Group,
    pub(super) meaning: &'static str,
    pub(super) values: &'static str,
    pub(super) default: &'static str,
    pub(super) read_by: &'static [&'static str],
    pub(super) replacement: Option<&'static Variable>,
}

impl Variable {
    /// Its name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// What it is about.
    pub const fn group(&self) -> Group {
        self.group
    }

    /// What it does; Markdown.
    pub const fn meaning(&self) -> &'static str {
        self.meaning
    }

    /// Possible values; Markdown.
    pub const fn values(&self) -> &'static str {
        self.values
    }

    /// What holds when it is not set; Markdown.
    pub const fn default(&self) -> &'static str {
        self.default
    }

    /// The packages, or for variables of others the programs, that read it.
    pub const fn read_by(&self) -> &'static [&'static str] {
        self.read_by
    }

    /// The variable to use instead; only an older name has one.
    pub const fn replacement(&self) -> Option<&'static Variable> {
        self.replacement
    }
}

impl fmt::Display for Variable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name)
    }
}

/// What variables are about; the sections of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Group {
    /// Which devices there are.
    Devices,
    /// How graphs are computed.
    Computing,
    /// Where kernels come from.
    Kernels,
    /// How kernels are compiled.
    Compiling,
    /// What is told to people.
    Reports,
    /// AMD's runtime library and the process it runs in.
    Runtime,
    /// What is fixed when the library is built.
    Build,
    /// Variables of the system that we read.
    System,
    /// Variables of others that change what we do without our reading them.
    Neighbours,
    /// The project's own commands.
    Tools,
}

impl Group {
    /// All, in the order of the page.
    pub const ALL: [Self; 10] = [
        Self::Devices,
        Self::Computing,
        Self::Kernels,
        Self::Compiling,
        Self::Reports,
        Self::Runtime,
        Self::Build,
        Self::System,
        Self::Neighbours,
        Self::Tools,
    ];

    /// The heading of its section.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Devices => "Devices",
            Self::Computing => "Computing",
            Self::Kernels => "Kernels",
            Self::Compiling => "Compiling",
            Self::Reports => "Messages and statistics",
            Self::Runtime => "AMD's runtime",
            Self::Build => "While building",
            Self::System => "Of the system",
            Self::Neighbours => "Of others, not read by us",
            Self::Tools => "Of the project's commands",
        }
    }
}

/// Variables whose names begin alike and that are described elsewhere: those of test equipment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Family {
    /// How the names begin.
    pub prefix: &'static str,
    /// What they are for.
    pub meaning: &'static str,
    /// The file that reads and describes them, from the project's folder.
    pub described_in: &'static str,
}
