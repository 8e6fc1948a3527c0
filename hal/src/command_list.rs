//! What a queue executes: recorded once, immutable, replayed with a binding table.
//!
//! Ordering: commands between two [`Command::Barrier`]s may run in any order and may overlap. A barrier makes everything before
//! it complete and visible before anything after it starts. Each command on its own is atomic with respect to the others.
//! An output range may overlap input ranges of the same dispatch or host call: inputs are read as they were before.

use crate::buffer::{Access, Buffer};
use crate::executable::Executable;
use crate::host_function::HostFunction;
use std::any::Any;
use std::sync::{Arc, OnceLock};
use thiserror::Error;

/// Largest payload of [`Command::Update`] in bytes.
pub const MAX_UPDATE_BYTES: usize = 64 * 1024;
/// Most entries of a [`BindingTable`].
pub const MAX_SLOTS: usize = 1 << 16;

/// What a [`BufferRef`] is a range of.
#[derive(Debug, Clone)]
pub enum RangeOf {
    /// A buffer known when recording. The list keeps it alive.
    Buffer(Arc<dyn Buffer>),
    /// Whatever the [`BindingTable`] has at this index at submission.
    Slot(usize),
}

/// A byte range that a command uses.
#[derive(Debug, Clone)]
pub struct BufferRef {
    /// What it is a range of.
    pub of: RangeOf,
    /// First byte, relative to the buffer or the binding.
    pub offset: usize,
    /// Number of bytes.
    pub length: usize,
}

impl BufferRef {
    /// A direct reference.
    pub fn direct(buffer: &Arc<dyn Buffer>, offset: usize, length: usize) -> Self {
        Self { of: RangeOf::Buffer(Arc::clone(buffer)), offset, length }
    }

    /// A reference through the binding table.
    pub fn slot(slot: usize, offset: usize, length: usize) -> Self {
        Self { of: RangeOf::Slot(slot), offset, length }
    }
}

/// One entry of a [`BindingTable`].
#[derive(Debug, Clone)]
pub struct Binding {
    /// The buffer.
    pub buffer: Arc<dyn Buffer>,
    /// First byte of the bound range.
    pub offset: usize,
    /// Number of bytes of the bound range.
    pub length: usize,
}

/// Fills the slots of a [`CommandList`] at submission.
#[derive(Debug, Clone, Default)]
pub struct BindingTable {
    /// Bindings by slot.
    pub bindings: Vec<Binding>,
}

/// A [`BufferRef`] does not resolve.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResolveError {
    /// The table is too short.
    #[error("slot {slot} is not bound; the table has {bound} bindings")]
    Unbound {
        /// The requested slot.
        slot: usize,
        /// Number of bindings.
        bound: usize,
    },
    /// The range leaves its buffer or binding.
    #[error("range {offset}+{length} leaves the {size} bytes it refers to")]
    OutOfRange {
        /// First byte.
        offset: usize,
        /// Number of bytes.
        length: usize,
        /// Bytes available.
        size: usize,
    },
}

fn check_range(offset: usize, length: usize, size: usize) -> Result<(), ResolveError> {
    match offset.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(ResolveError::OutOfRange { offset, length, size }),
    }
}

impl BufferRef {
    /// Finds the buffer, the first byte and the number of bytes, and checks the range.
    ///
    /// # Errors
    /// [`ResolveError`] when the slot is unbound or a range leaves its buffer.
    pub fn locate<'a>(&'a self, table: &'a BindingTable) -> Result<(&'a Arc<dyn Buffer>, usize, usize), ResolveError> {
        let Self { of, offset, length } = self;
        match of {
            RangeOf::Buffer(buffer) => {
                check_range(*offset, *length, buffer.size())?;
                Ok((buffer, *offset, *length))
            }
            RangeOf::Slot(slot) => {
                let bound = table.bindings.len();
                let binding = table.bindings.get(*slot).ok_or(ResolveError::Unbound { slot: *slot, bound })?;
                check_range(binding.offset, binding.length, binding.buffer.size())?;
                check_range(*offset, *length, binding.length)?;
                Ok((&binding.buffer, binding.offset + offset, *length))
            }
        }
    }
}

/// One recorded command.
#[derive(Debug, Clone)]
pub enum Command {
    /// Repeats `pattern` over `target`.
    Fill {
        /// 1, 2 or 4 bytes; the target's offset and length are multiples of it.
        pattern: Vec<u8>,
        /// Where.
        target: BufferRef,
    },
    /// Writes bytes captured when recording (at most [`MAX_UPDATE_BYTES`]).
    Update {
        /// The bytes.
        data: Arc<[u8]>,
        /// Where; as long as `data`.
        target: BufferRef,
    },
    /// Copies between ranges of the same length that do not overlap.
    Copy {
        /// From.
        source: BufferRef,
        /// To.
        target: BufferRef,
    },
    /// Runs a kernel on the array.
    Dispatch {
        /// The kernel.
        executable: Arc<dyn Executable>,
        /// The kernel's arguments in order: sources, then outputs, as many as the artifact's argument count.
        bindings: Vec<BufferRef>,
        /// How many of them are outputs; at least 1.
        outputs: usize,
    },
    /// Runs a function on the host, in queue order. The queue makes device writes visible to it and its writes visible to the
    /// device.
    HostCall {
        /// The function.
        function: Arc<dyn HostFunction>,
        /// Its inputs.
        inputs: Vec<BufferRef>,
        /// Its output.
        output: BufferRef,
    },
    /// Orders what comes before against what comes after.
    Barrier,
}

impl Command {
    /// Every range the command touches, in argument order.
    pub fn references(&self) -> impl Iterator<Item = (&BufferRef, Access)> {
        use std::slice::from_ref;
        let (reads, writes): (&[BufferRef], &[BufferRef]) = match self {
            Self::Fill { target, .. } | Self::Update { target, .. } => (&[], from_ref(target)),
            Self::Copy { source, target } => (from_ref(source), from_ref(target)),
            Self::Dispatch { bindings, outputs, .. } => bindings.split_at(bindings.len().saturating_sub(*outputs)),
            Self::HostCall { inputs, output, .. } => (inputs, from_ref(output)),
            Self::Barrier => (&[], &[]),
        };
        reads.iter().map(|r| (r, Access::Read)).chain(writes.iter().map(|w| (w, Access::Write)))
    }
}

/// A recorded, immutable list of commands. Cheap to share (`Arc`), may be in flight several times at once.
#[derive(Debug)]
pub struct CommandList {
    commands: Vec<Command>,
    slots: usize,
    apart: bool,
    expected: Vec<Arc<dyn Executable>>,
    derived: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl CommandList {
    /// Starts recording a list. Its binding table has as many entries as its commands refer to.
    pub fn builder() -> CommandListBuilder {
        CommandListBuilder::default()
    }

    /// This list with other commands and kernels, which were checked: those of the layer below.
    pub(crate) fn rewrapped(&self, commands: Vec<Command>, expected: Vec<Arc<dyn Executable>>) -> Self {
        Self { commands, slots: self.slots, apart: self.apart, expected, derived: OnceLock::new() }
    }

    /// The commands in recorded order.
    pub fn commands(&self) -> &[Command] {
        &self.commands
    }

    /// Number of bindings a submission has to bring.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Whether each dispatch is to stay one of its own ([`CommandListBuilder::keep_apart`]).
    pub fn is_apart(&self) -> bool {
        self.apart
    }

    /// Kernels that later lists will use ([`CommandListBuilder::expect`]).
    pub fn expected(&self) -> &[Arc<dyn Executable>] {
        &self.expected
    }

    /// What the layer that executes this list derived from it (checks done, a plan), made by the first call and kept as long
    /// as the list. `None` when another layer keeps something of another type here; then the caller gets no cached value.
    ///
    /// One list may be submitted to several devices: a `T` that depends on the device has to say which it is for.
    pub fn derived<T: Any + Send + Sync>(&self, make: impl FnOnce() -> T) -> Option<&T> {
        self.derived.get_or_init(|| Box::new(make())).downcast_ref()
    }
}

/// Records a [`CommandList`].
#[derive(Debug, Default)]
pub struct CommandListBuilder {
    commands: Vec<Command>,
    slots: usize,
    apart: bool,
    expected: Vec<Arc<dyn Executable>>,
}

/// A command cannot be recorded.
#[derive(Debug, Clone, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// A slot that no binding table has.
    #[error("slot {0}; a command list has at most {MAX_SLOTS} slots")]
    Slot(usize),
    /// A direct range leaves its buffer, or a range is larger than any buffer.
    #[error(transparent)]
    Range(#[from] ResolveError),
    /// A fill pattern of another size than 1, 2 or 4 bytes, or a target that is not a multiple of it.
    #[error("fill: {0}")]
    Fill(String),
    /// An update that is too large or of another length than its target.
    #[error("update: {0}")]
    Update(String),
    /// Source and target of a copy differ in length or overlap.
    #[error("copy: {0}")]
    Copy(String),
    /// Not as many bindings as the kernel takes, or no outputs among them.
    #[error("dispatch of {0}")]
    Dispatch(String),
    /// Not as many inputs as the host function takes, or one with several outputs.
    #[error("host call of {0}")]
    HostCall(String),
}

impl CommandListBuilder {
    fn push(&mut self, command: Command) -> Result<&mut Self, RecordError> {
        let mut slots = self.slots;
        for (reference, _) in command.references() {
            let size = match &reference.of {
                RangeOf::Buffer(buffer) => buffer.size(),
                RangeOf::Slot(slot) if *slot >= MAX_SLOTS => return Err(RecordError::Slot(*slot)),
                RangeOf::Slot(slot) => {
                    slots = slots.max(slot + 1);
                    usize::MAX
                }
            };
            check_range(reference.offset, reference.length, size)?;
        }
        self.slots = slots;
        self.commands.push(command);
        Ok(self)
    }

    /// Has each dispatch of the list stay one of its own. A device may otherwise execute neighbours with the same PDI as one, which
    /// changes nothing but time; errors and timelines are easier to read without.
    pub fn keep_apart(&mut self) -> &mut Self {
        self.apart = true;
        self
    }

    /// Names a kernel that this list need not use and later ones will. Where a context is made for this list, the kernel's PDI is put
    /// into it too if there is room, so that later lists need no other one.
    pub fn expect(&mut self, executable: &Arc<dyn Executable>) -> &mut Self {
        self.expected.push(Arc::clone(executable));
        self
    }

    /// Records [`Command::Fill`].
    ///
    /// # Errors
    /// [`RecordError::Fill`] for a pattern that is not 1, 2 or 4 bytes or does not divide the target; slot and range errors.
    pub fn fill(&mut self, pattern: &[u8], target: BufferRef) -> Result<&mut Self, RecordError> {
        if !matches!(pattern.len(), 1 | 2 | 4) {
            return Err(RecordError::Fill(format!("a pattern of {} bytes; 1, 2 and 4 are possible", pattern.len())));
        }
        let BufferRef { offset, length, .. } = &target;
        if offset % pattern.len() != 0 || length % pattern.len() != 0 {
            return Err(RecordError::Fill(format!(
                "target {offset}+{length} is not a multiple of the {}-byte pattern",
                pattern.len()
            )));
        }
        self.push(Command::Fill { pattern: pattern.to_vec(), target })
    }

    /// Records [`Command::Update`]; the bytes are captured now.
    ///
    /// # Errors
    /// [`RecordError::Update`] when the data is larger than [`MAX_UPDATE_BYTES`] or not as long as the target.
    pub fn update(&mut self, data: &[u8], target: BufferRef) -> Result<&mut Self, RecordError> {
        if data.len() > MAX_UPDATE_BYTES {
            return Err(RecordError::Update(format!("{} bytes; at most {MAX_UPDATE_BYTES}, use a copy", data.len())));
        }
        if data.len() != target.length {
            return Err(RecordError::Update(format!("{} bytes for a target of {}", data.len(), target.length)));
        }
        self.push(Command::Update { data: data.into(), target })
    }

    /// Records [`Command::Copy`].
    ///
    /// # Errors
    /// [`RecordError::Copy`] when the lengths differ or the ranges overlap (as far as recording can see).
    pub fn copy(&mut self, source: BufferRef, target: BufferRef) -> Result<&mut Self, RecordError> {
        if source.length != target.length {
            return Err(RecordError::Copy(format!("{} bytes to a target of {}", source.length, target.length)));
        }
        let same = match (&source.of, &target.of) {
            (RangeOf::Buffer(a), RangeOf::Buffer(b)) => Arc::ptr_eq(a, b),
            (RangeOf::Slot(a), RangeOf::Slot(b)) => a == b,
            _ => false,
        };
        if same && source.offset.abs_diff(target.offset) < source.length {
            return Err(RecordError::Copy("source and target overlap; use a temporary buffer".into()));
        }
        self.push(Command::Copy { source, target })
    }

    /// Records [`Command::Dispatch`]: sources in order, then the output.
    ///
    /// # Errors
    /// [`RecordError::Dispatch`] when the number of bindings is not the artifact's argument count; slot and range errors.
    pub fn dispatch(
        &mut self,
        executable: &Arc<dyn Executable>,
        bindings: Vec<BufferRef>,
    ) -> Result<&mut Self, RecordError> {
        self.dispatch_outputs(executable, bindings, 1)
    }

    /// Records [`Command::Dispatch`] of a kernel with several outputs: sources in order, then `outputs` outputs in order.
    ///
    /// # Errors
    /// As [`CommandListBuilder::dispatch`], and when there are no outputs, or more than bindings.
    pub fn dispatch_outputs(
        &mut self,
        executable: &Arc<dyn Executable>,
        bindings: Vec<BufferRef>,
        outputs: usize,
    ) -> Result<&mut Self, RecordError> {
        let (kernel, given) = (executable.artifact().name(), bindings.len());
        if outputs == 0 || outputs > given.max(1) {
            let reason = format!("`{kernel}`: {outputs} outputs among {given} arguments; there must be 1 to {given}");
            return Err(RecordError::Dispatch(reason));
        }
        let expected = executable.artifact().argument_count();
        if given != expected {
            let reason = format!("`{kernel}`: {given} bindings given, the kernel takes {expected}");
            return Err(RecordError::Dispatch(reason));
        }
        self.push(Command::Dispatch { executable: Arc::clone(executable), bindings, outputs })
    }

    /// Records [`Command::HostCall`].
    ///
    /// # Errors
    /// [`RecordError::HostCall`] when the number of inputs is not what the function takes, or it has several outputs; slot and
    /// range errors.
    pub fn host_call(
        &mut self,
        function: &Arc<dyn HostFunction>,
        inputs: Vec<BufferRef>,
        output: BufferRef,
    ) -> Result<&mut Self, RecordError> {
        let (name, given, expected) = (function.name(), inputs.len(), function.input_count());
        if given != expected {
            return Err(RecordError::HostCall(format!("`{name}`: {given} inputs given, it takes {expected}")));
        }
        if function.output_count() != 1 {
            let reason = format!("`{name}`: it has {} outputs, a host call has one", function.output_count());
            return Err(RecordError::HostCall(reason));
        }
        self.push(Command::HostCall { function: Arc::clone(function), inputs, output })
    }

    /// Records [`Command::Barrier`]. Two in a row count as one.
    pub fn barrier(&mut self) -> &mut Self {
        if !matches!(self.commands.last(), None | Some(Command::Barrier)) {
            self.commands.push(Command::Barrier);
        }
        self
    }

    /// Ends recording.
    pub fn finish(self) -> CommandList {
        let Self { commands, slots, apart, expected } = self;
        CommandList { commands, slots, apart, expected, derived: OnceLock::new() }
    }
}

#[cfg(test)]
mod tests;
