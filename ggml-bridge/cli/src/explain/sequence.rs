//! What runs behind what: the dispatches of a pass in their chains, the host calls between them, and how often the array changes its
//! configuration.

use super::contexts::Contexts;
use aie_emulator::design::{Design, Source};
use aie_hal::device::{chain_command_bytes, joined_stream_bytes};
use aie_hal::format::extent::{ArgumentExtent, Extent, Traffic};
use aie_hal::format::instructions::InstructionStream;
use aie_hal::{Arch, Command, CommandList, KernelArtifact, Limits, RangeOf};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Consecutive commands that do the same: dispatches of one chain with one configuration, or host calls of one function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Stretch {
    /// The chain, counted from 0; `None` for host calls.
    pub chain: Option<usize>,
    /// The configuration, as an index of the pass's; `None` for host calls.
    pub configuration: Option<usize>,
    /// What runs, by the names of kernels or functions, each once.
    pub names: BTreeSet<String>,
    /// How many commands.
    pub commands: usize,
}

/// A configuration of the array: a PDI.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Configuration {
    /// The digest of the PDI.
    pub pdi: String,
    /// Whether it is machine code, and no description that only simulated devices compute.
    pub code: bool,
    /// The kernels that need it.
    pub kernels: BTreeSet<String>,
    /// Dispatches of them.
    pub dispatches: u64,
    /// The tiles it configures, by column and row, and whether a program runs there. Empty for a description.
    pub tiles: BTreeMap<String, TileUse>,
    /// Why no tiles are known.
    pub tiles_unknown: Option<String>,
}

/// What a configuration does with a tile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TileUse {
    /// Column.
    pub column: u8,
    /// Row, 0 next to memory.
    pub row: u8,
    /// Whether it runs a program, or only moves data.
    pub program: bool,
}

/// How neighbours with one configuration go together (`GGML_HSA_JOIN`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Joins {
    /// Whether the settings let the queue join them.
    pub enabled: bool,
    /// Times a dispatch needs another configuration than the dispatch before it, in the order in which the queue runs them. The first
    /// of all is one.
    pub pdi_changes: u64,
    /// Dispatches that can become one with the dispatch before them. A run joins at most these: how long a joined dispatch would take
    /// is a further bound, which depends on the driver.
    pub joined_at_most: u64,
    /// Places in chains that all dispatches need at least.
    pub places_at_least: u64,
}

/// The sequence of a pass.
#[derive(Debug, Clone, Default)]
pub struct Sequence {
    /// Stretches in order.
    pub stretches: Vec<Stretch>,
    /// Configurations in the order in which they are needed first.
    pub configurations: Vec<Configuration>,
    /// Joined dispatches.
    pub joins: Joins,
    /// Chains, as far as neighbours are joined.
    pub chains: usize,
    /// Times a chain needs another hardware context than the chain before it.
    pub context_switches: u64,
    /// Operations of the streams of all dispatches that are machine code, a block write once for every eight words.
    pub operations: u64,
    /// What a dispatch of each kernel reads of memory, or writes there, whatever takes longer, where it is known.
    pub traffic: BTreeMap<String, Traffic>,
}

impl Sequence {
    /// That of command lists, one submitted behind the other, behind what `contexts` were used for before.
    pub fn of(lists: &[&CommandList], contexts: &mut Contexts, limits: &Limits, arch: &Arch) -> Self {
        let mut found = Self::default();
        for list in lists {
            found.continue_with(list, contexts, limits, arch);
        }
        found
    }

    fn continue_with(&mut self, list: &CommandList, contexts: &mut Contexts, limits: &Limits, arch: &Arch) {
        contexts.place(list);
        let found = self;
        let mut chains = Chains { begun: found.chains, ..Chains::default() };
        let joins = Joins { enabled: !list.is_apart(), ..found.joins };
        let mut joining = Joining::new(joins, limits);
        for command in ordered(list, contexts) {
            match command {
                Command::Dispatch { executable, bindings, .. } => {
                    let artifact = executable.artifact();
                    let configuration = found.configuration(artifact, arch);
                    found.configurations[configuration].dispatches += 1;
                    if found.configurations[configuration].code {
                        found.operations += artifact.charged_operations();
                        found.note_traffic(artifact, arch);
                    }
                    let joined = joining.dispatch(configuration, artifact, bindings.iter().map(|binding| &binding.of));
                    let chain = match joined {
                        Some(arguments) => chains.grow(chain_command_bytes(arguments), limits),
                        None => {
                            let context = contexts.of(artifact);
                            chains.dispatch(context, chain_command_bytes(bindings.len()), limits)
                        }
                    };
                    if chain == found.chains {
                        found.chains += 1;
                        found.context_switches += chains.context.map_or(0, |to| u64::from(contexts.switches_to(to)));
                    }
                    found.add(Some(chain), Some(configuration), artifact.name());
                }
                Command::HostCall { function, .. } => {
                    (chains.commands, joining.first) = (0, true);
                    found.add(None, None, function.name());
                }
                Command::Barrier => {}
                _ => {
                    (chains.commands, joining.first) = (0, true);
                    found.add(None, None, "memory");
                }
            }
        }
        found.joins = joining.joins;
    }

    /// The index of a kernel's configuration.
    fn configuration(&mut self, artifact: &KernelArtifact, arch: &Arch) -> usize {
        let pdi = artifact.digest().to_string();
        let index = self.configurations.iter().position(|known| known.pdi == pdi).unwrap_or_else(|| {
            let code = !artifact.is_description();
            let (tiles, tiles_unknown) = match code {
                true => match tiles(artifact, arch) {
                    Ok(tiles) => (tiles, None),
                    Err(cause) => (BTreeMap::new(), Some(cause)),
                },
                false => {
                    (BTreeMap::new(), Some("a description for simulated devices, which names no tiles".to_owned()))
                }
            };
            let kernels = BTreeSet::new();
            self.configurations.push(Configuration { pdi, code, kernels, dispatches: 0, tiles, tiles_unknown });
            self.configurations.len() - 1
        });
        self.configurations[index].kernels.insert(artifact.name().to_owned());
        index
    }

    fn note_traffic(&mut self, artifact: &KernelArtifact, arch: &Arch) {
        if artifact.stream_maker().is_some() || self.traffic.contains_key(artifact.name()) {
            return;
        }
        let Ok(extents) = artifact.argument_extents() else { return };
        let sum = |of: fn(&ArgumentExtent) -> &Option<Extent>| {
            extents
                .iter()
                .filter_map(|extent| of(extent).as_ref())
                .map(|part| part.moved)
                .fold(Traffic::default(), Traffic::and)
        };
        let ways = [sum(|extent| &extent.read), sum(|extent| &extent.written)];
        let longer = ways.into_iter().max_by_key(|traffic| arch.cost.ddr_ns(*traffic));
        self.traffic.insert(artifact.name().to_owned(), longer.unwrap_or_default());
    }

    fn add(&mut self, chain: Option<usize>, configuration: Option<usize>, name: &str) {
        match self.stretches.last_mut() {
            Some(last)
                if last.chain == chain
                    && last.configuration == configuration
                    && (chain.is_some() || last.names.contains(name)) =>
            {
                last.commands += 1;
                last.names.insert(name.to_owned());
            }
            _ => self.stretches.push(Stretch { chain, configuration, names: [name.to_owned()].into(), commands: 1 }),
        }
    }
}

/// The tiles that a PDI configures.
fn tiles(artifact: &KernelArtifact, arch: &Arch) -> Result<BTreeMap<String, TileUse>, String> {
    let source = Source::parse(artifact.pdi(), None).map_err(|cause| cause.to_string())?;
    let design = Design::read(arch, &source).map_err(|cause| cause.to_string())?;
    let used = |tile: &aie_emulator::design::Tile| {
        let (column, row) = tile.position.key();
        let program = tile.core.as_ref().is_some_and(|core| core.program.is_some());
        (format!("{column},{row}"), TileUse { column, row, program })
    };
    Ok(design.tiles.iter().map(used).collect())
}

/// Chains as the queue fills them: a host call between dispatches ends one, and so do a full one and another context.
#[derive(Debug, Default)]
struct Chains {
    begun: usize,
    /// That of the chain that is filled.
    context: Option<u64>,
    commands: usize,
    bytes: usize,
    /// Bytes of the last command.
    last: usize,
}

impl Chains {
    /// The chain of one more dispatch.
    fn dispatch(&mut self, context: u64, size: usize, limits: &Limits) -> usize {
        let full = self.commands == limits.commands_per_chain || self.bytes + size > limits.chain_buffer_bytes;
        if self.commands == 0 || full || self.context != Some(context) {
            (self.begun, self.commands, self.bytes) = (self.begun + 1, 0, 0);
            self.context = Some(context);
        }
        (self.commands, self.bytes, self.last) = (self.commands + 1, self.bytes + size, size);
        self.begun - 1
    }

    /// The chain of the last dispatch when it takes `size` bytes, joined with one more. It goes where it fits as a whole.
    fn grow(&mut self, size: usize, limits: &Limits) -> usize {
        self.bytes = self.bytes - self.last + size;
        self.last = size;
        if self.bytes > limits.chain_buffer_bytes && self.commands > 1 {
            (self.begun, self.commands, self.bytes) = (self.begun + 1, 1, size);
        }
        self.begun.saturating_sub(1)
    }
}

/// The PDI of a dispatch whose stream can be put behind others.
fn joinable(command: &Command) -> Option<&KernelArtifact> {
    let Command::Dispatch { executable, .. } = command else { return None };
    let artifact = executable.artifact();
    let stream = InstructionStream::parse(artifact.instructions()).ok()?;
    (!artifact.is_description() && stream.can_be_joined()).then_some(artifact)
}

/// The commands as the queue runs them: between two barriers, dispatches with one PDI are next to each other where nothing else is
/// between them in one context; the PDI of the previous group first, that of the next group last.
fn ordered<'a>(list: &'a CommandList, contexts: &Contexts) -> Vec<&'a Command> {
    let mut groups: Vec<Vec<&Command>> = vec![Vec::new()];
    for command in list.commands() {
        match command {
            Command::Barrier => groups.push(Vec::new()),
            _ => groups.last_mut().into_iter().for_each(|group| group.push(command)),
        }
    }
    groups.retain(|group| !group.is_empty());
    if list.is_apart() {
        return groups.concat();
    }
    let digest = |command: &Command| joinable(command).map(|artifact| *artifact.digest());
    let next: Vec<_> = groups.iter().skip(1).map(|group| group.first().and_then(|first| digest(first))).collect();
    let mut before = None;
    for (index, group) in groups.iter_mut().enumerate() {
        if group.len() > 1 {
            let after = next.get(index).copied().flatten();
            let context = |command: &Command| joinable(command).and_then(|artifact| contexts.located(artifact));
            for neighbours in group.chunk_by_mut(|a, b| context(a).is_some() && context(a) == context(b)) {
                let mut pdis = Vec::new();
                for pdi in neighbours.iter().filter_map(|command| digest(command)) {
                    if !pdis.contains(&pdi) {
                        pdis.push(pdi);
                    }
                }
                pdis.sort_by_key(|pdi| (Some(*pdi) != before, Some(*pdi) == after));
                neighbours.sort_by_key(|command| pdis.iter().position(|pdi| Some(*pdi) == digest(command)));
                before = pdis.last().copied();
            }
        }
        before = group.last().and_then(|last| digest(last));
    }
    groups.concat()
}

/// Which dispatches become one.
struct Joining {
    joins: Joins,
    most_arguments: usize,
    most_stream_bytes: usize,
    /// Whether the next dispatch is the first behind something else.
    first: bool,
    configuration: Option<usize>,
    joinable: bool,
    stream_bytes: usize,
    arguments: BTreeSet<(bool, usize)>,
}

impl Joining {
    fn new(joins: Joins, limits: &Limits) -> Self {
        Self {
            joins,
            most_arguments: limits.kernel_arguments,
            most_stream_bytes: joined_stream_bytes(limits),
            first: true,
            configuration: None,
            joinable: false,
            stream_bytes: 0,
            arguments: BTreeSet::new(),
        }
    }

    /// Adds a dispatch. How many arguments it has together with those before it, if it joins them.
    fn dispatch<'a>(
        &mut self,
        configuration: usize,
        artifact: &KernelArtifact,
        ranges: impl Iterator<Item = &'a RangeOf>,
    ) -> Option<usize> {
        let same = self.configuration == Some(configuration);
        self.joins.pdi_changes += u64::from(!same);
        let stream = InstructionStream::parse(artifact.instructions());
        let can = !artifact.is_description() && stream.is_ok_and(|stream| stream.can_be_joined());
        let of: BTreeSet<(bool, usize)> = ranges
            .map(|range| match range {
                RangeOf::Buffer(buffer) => (false, Arc::as_ptr(buffer).cast::<()>() as usize),
                RangeOf::Slot(slot) => (true, *slot),
            })
            .collect();
        let together: BTreeSet<_> = self.arguments.union(&of).copied().collect();
        let bytes = artifact.instructions().len();
        let joins = self.joins.enabled
            && !self.first
            && same
            && can
            && self.joinable
            && together.len() <= self.most_arguments
            && self.stream_bytes + bytes <= self.most_stream_bytes;
        if joins {
            self.joins.joined_at_most += 1;
            (self.arguments, self.stream_bytes) = (together, self.stream_bytes + bytes);
        } else {
            self.joins.places_at_least += 1;
            (self.arguments, self.stream_bytes) = (of, bytes);
        }
        (self.first, self.configuration, self.joinable) = (false, Some(configuration), can);
        joins.then_some(self.arguments.len())
    }
}
