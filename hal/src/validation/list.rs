//! Command lists: what can be checked once, and what each submission's bindings add.

use super::hazard::{Touch, find_hazard};
use super::object::{ValidatedBuffer, ValidatedExecutable};
use super::{DISPATCH_ALIGNMENT, Owner};
use crate::buffer::{Access, Buffer};
use crate::command_list::{Binding, BindingTable, BufferRef, Command, CommandList, RangeOf};
use crate::error::SubmitError;
use crate::executable::Executable;
use std::any::Any;
use std::ops::Range;
use std::sync::Arc;

/// A checked list, its twin for the driver, and what has to be known of its slots.
#[derive(Debug)]
pub(super) struct Checked {
    /// The same commands on the driver's own objects.
    pub(super) list: Arc<CommandList>,
    /// Whose objects the list holds; `None` when it holds none.
    owner: Option<Arc<Owner>>,
    slots: Vec<SlotUse>,
    direct: Addresses,
}

/// What a list asks of the binding in one slot. The indices name the command that asks most, for messages.
#[derive(Debug, Clone, Default)]
struct SlotUse {
    /// The part that is used, relative to the binding; empty when nothing is.
    range: Range<usize>,
    range_command: usize,
    /// Alignment of the bound offset (fills).
    offset_alignment: Option<(usize, usize)>,
    /// A command that dispatches with this slot, so that the address has to be aligned.
    dispatch: Option<usize>,
    written: bool,
}

/// Device addresses that direct references touch, as sorted ranges that do not overlap.
#[derive(Debug, Default)]
struct Addresses {
    all: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
}

fn merge(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.retain(|range| !range.is_empty());
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    merged
}

fn overlaps(ranges: &[Range<u64>], range: &Range<u64>) -> bool {
    let index = ranges.partition_point(|other| other.end <= range.start);
    ranges.get(index).is_some_and(|other| other.start < range.end)
}

/// A command for messages: its index, kind and kernel.
fn describe(index: usize, command: &Command) -> String {
    match command {
        Command::Fill { .. } => format!("command {index} (fill)"),
        Command::Update { .. } => format!("command {index} (update)"),
        Command::Copy { .. } => format!("command {index} (copy)"),
        Command::Dispatch { executable, .. } => {
            format!("command {index} (dispatch of `{}`)", executable.artifact().name())
        }
        Command::HostCall { function, .. } => format!("command {index} (host call of `{}`)", function.name()),
        Command::Barrier => format!("command {index} (barrier)"),
    }
}

/// The wrapper behind `buffer`, when this layer made it.
fn wrapper(buffer: &Arc<dyn Buffer>) -> Option<&ValidatedBuffer> {
    (&**buffer as &dyn Any).downcast_ref()
}

/// The device address of byte `offset` of `buffer`. An address beyond the last is a defect of the driver; it must not panic.
fn address(buffer: &dyn Buffer, offset: usize) -> u64 {
    buffer.device_address().saturating_add(offset as u64)
}

fn misaligned(what: &str, address: u64) -> String {
    format!(
        "{what} is at device address {address:#x}, which is not a multiple of {DISPATCH_ALIGNMENT} bytes, the granularity of the shim \
         DMA; copy it to an aligned range first"
    )
}

impl Checked {
    /// Checks everything that does not depend on bindings.
    pub(super) fn new(list: &CommandList) -> Result<Self, SubmitError> {
        let mut builder = Builder {
            owner: None,
            slots: vec![SlotUse::default(); list.slots()],
            commands: Vec::with_capacity(list.commands().len()),
            all: Vec::new(),
            written: Vec::new(),
        };
        let mut touches = Vec::new();
        for (index, command) in list.commands().iter().enumerate() {
            builder.add(index, command, &mut touches)?;
            if matches!(command, Command::Barrier) {
                check_hazards(list, &mut touches)?;
            }
        }
        check_hazards(list, &mut touches)?;
        let expected =
            list.expected().iter().map(|executable| builder.bare_kernel(executable, || "an expected kernel".into()));
        let expected = expected.collect::<Result<_, _>>()?;
        Ok(Self {
            list: Arc::new(list.rewrapped(builder.commands, expected)),
            owner: builder.owner,
            slots: builder.slots,
            direct: Addresses { all: merge(builder.all), written: merge(builder.written) },
        })
    }

    /// Checks the bindings of one submission to `owner` and returns them on the driver's own buffers.
    pub(super) fn bind(&self, owner: &Arc<Owner>, bindings: &BindingTable) -> Result<BindingTable, SubmitError> {
        if let Some(list_owner) = self.owner.as_ref().filter(|other| !Arc::ptr_eq(other, owner)) {
            return Err(SubmitError::CommandList(format!(
                "it holds objects of {}, the queue belongs to {}; record it again with objects of that device",
                list_owner.name(),
                owner.name()
            )));
        }
        let bindings = &bindings.bindings;
        if bindings.len() != self.slots.len() {
            return Err(SubmitError::Binding(format!(
                "{} bindings given, the command list has {} slots; give one binding per slot",
                bindings.len(),
                self.slots.len()
            )));
        }
        let mut inner = Vec::with_capacity(bindings.len());
        let mut touched = Vec::with_capacity(bindings.len());
        for (slot, (binding, slot_use)) in bindings.iter().zip(&self.slots).enumerate() {
            let buffer =
                wrapper(&binding.buffer).filter(|wrapper| Arc::ptr_eq(&wrapper.owner, owner)).ok_or_else(|| {
                    SubmitError::Binding(format!(
                        "the buffer in slot {slot} was not made by {}; use a buffer of the device that owns the queue",
                        owner.name()
                    ))
                })?;
            self.check_binding(slot, binding, slot_use)?;
            let Range { start, end } = slot_use.range;
            if start < end {
                let base = address(&*binding.buffer, binding.offset);
                let at = |offset: usize| base.saturating_add(offset as u64);
                touched.push((at(start)..at(end), slot_use.written));
            }
            inner.push(Binding { buffer: Arc::clone(&buffer.inner), offset: binding.offset, length: binding.length });
        }
        if self.aliased(touched) {
            self.check_resolved(bindings)?;
        }
        Ok(BindingTable { bindings: inner })
    }

    fn check_binding(&self, slot: usize, binding: &Binding, slot_use: &SlotUse) -> Result<(), SubmitError> {
        let Binding { buffer, offset, length } = binding;
        let at = |command: usize| describe(command, &self.list.commands()[command]);
        if offset.checked_add(*length).is_none_or(|end| end > buffer.size()) {
            return Err(SubmitError::Binding(format!(
                "range {offset}+{length} in slot {slot} is not inside its buffer of {} bytes",
                buffer.size()
            )));
        }
        if slot_use.range.end > *length {
            return Err(SubmitError::Binding(format!(
                "{} uses slot {slot} up to byte {}, the binding has {length} bytes; bind a larger range",
                at(slot_use.range_command),
                slot_use.range.end
            )));
        }
        if let Some((alignment, command)) = slot_use.offset_alignment
            && offset % alignment != 0
        {
            return Err(SubmitError::Binding(format!(
                "{} fills slot {slot} with a pattern of {alignment} bytes, the bound offset {offset} is not a multiple of it",
                at(command)
            )));
        }
        if let Some(command) = slot_use.dispatch {
            let address = address(&**buffer, *offset);
            if !address.is_multiple_of(DISPATCH_ALIGNMENT as u64) {
                let what = format!("{}: the binding in slot {slot}", at(command));
                return Err(SubmitError::Binding(misaligned(&what, address)));
            }
        }
        Ok(())
    }

    /// Whether two bindings, or a binding and a direct range, share bytes that some command writes.
    fn aliased(&self, mut touched: Vec<(Range<u64>, bool)>) -> bool {
        let direct = |(range, written): &(Range<u64>, bool)| {
            overlaps(if *written { &self.direct.all } else { &self.direct.written }, range)
        };
        if touched.iter().any(direct) {
            return true;
        }
        touched.sort_unstable_by_key(|(range, _)| range.start);
        let (mut end, mut written_end) = (0, 0);
        for (range, written) in touched {
            if range.start < if written { end } else { written_end } {
                return true;
            }
            end = end.max(range.end);
            if written {
                written_end = written_end.max(range.end);
            }
        }
        false
    }

    /// The full check, with every reference at its device address.
    fn check_resolved(&self, bindings: &[Binding]) -> Result<(), SubmitError> {
        let resolve = |reference: &BufferRef| {
            let base = match &reference.of {
                RangeOf::Buffer(buffer) => address(&**buffer, reference.offset),
                RangeOf::Slot(slot) => address(&*bindings[*slot].buffer, bindings[*slot].offset + reference.offset),
            };
            base..base.saturating_add(reference.length as u64)
        };
        let mut touches = Vec::new();
        for (command_index, command) in self.list.commands().iter().enumerate() {
            if let Command::Copy { source, target } = command {
                let (source, target) = (resolve(source), resolve(target));
                if source.start.max(target.start) < source.end.min(target.end) {
                    return Err(SubmitError::Binding(format!(
                        "source and target of {} overlap as bound; use a temporary buffer",
                        describe(command_index, command)
                    )));
                }
            }
            for (reference, access) in command.references() {
                let Range { start, end } = resolve(reference);
                let write = access == Access::Write;
                touches.push(Touch { space: 0, start, end, command: command_index, write });
            }
            if matches!(command, Command::Barrier) {
                check_hazards(&self.list, &mut touches)?;
            }
        }
        check_hazards(&self.list, &mut touches)
    }
}

/// Checks the commands since the last barrier and forgets them.
fn check_hazards(list: &CommandList, touches: &mut Vec<Touch>) -> Result<(), SubmitError> {
    if let Some((first, second)) = find_hazard(touches) {
        let verb = |touch: &Touch| if touch.write { "writes" } else { "reads" };
        let place = match first.space {
            0 => "device addresses".to_owned(),
            slot => format!("slot {} bytes", slot - 1),
        };
        let (start, end) = (first.start.max(second.start), first.end.min(second.end));
        let at = |touch: &Touch| describe(touch.command, &list.commands()[touch.command]);
        return Err(SubmitError::CommandList(format!(
            "{} {} {place} {start:#x}..{end:#x}, which {} {}, and no barrier is between them; record a barrier after command {}",
            at(&second),
            verb(&second),
            at(&first),
            verb(&first),
            second.command - 1
        )));
    }
    touches.clear();
    Ok(())
}

struct Builder {
    owner: Option<Arc<Owner>>,
    slots: Vec<SlotUse>,
    commands: Vec<Command>,
    all: Vec<Range<u64>>,
    written: Vec<Range<u64>>,
}

impl Builder {
    fn add(&mut self, index: usize, command: &Command, touches: &mut Vec<Touch>) -> Result<(), SubmitError> {
        for (argument, (reference, access)) in command.references().enumerate() {
            let write = access == Access::Write;
            let BufferRef { of, offset, length } = reference;
            let (space, start) = match of {
                RangeOf::Buffer(buffer) => (0, self.direct(index, command, argument, buffer, *offset)?),
                RangeOf::Slot(slot) => {
                    self.slot(index, command, *slot, *offset..*offset + *length, write)?;
                    (1 + slot, *offset as u64)
                }
            };
            let end = start.saturating_add(*length as u64);
            if space == 0 {
                self.all.push(start..end);
                if write {
                    self.written.push(start..end);
                }
            }
            touches.push(Touch { space, start, end, command: index, write });
        }
        let inner = self.unwrap(index, command)?;
        self.commands.push(inner);
        Ok(())
    }

    /// Takes note of a direct reference; returns its device address.
    fn direct(
        &mut self,
        index: usize,
        command: &Command,
        argument: usize,
        buffer: &Arc<dyn Buffer>,
        offset: usize,
    ) -> Result<u64, SubmitError> {
        let owner = wrapper(buffer).map(|wrapper| &wrapper.owner);
        self.adopt(owner, || format!("argument {argument} of {}", describe(index, command)))?;
        let address = address(&**buffer, offset);
        if matches!(command, Command::Dispatch { .. }) && !address.is_multiple_of(DISPATCH_ALIGNMENT as u64) {
            let what = format!("argument {argument} of {}", describe(index, command));
            return Err(SubmitError::CommandList(misaligned(&what, address)));
        }
        Ok(address)
    }

    fn slot(
        &mut self,
        index: usize,
        command: &Command,
        slot: usize,
        range: Range<usize>,
        write: bool,
    ) -> Result<(), SubmitError> {
        let slot_use = &mut self.slots[slot];
        if slot_use.range.is_empty() {
            slot_use.range.start = range.start;
        }
        slot_use.range.start = slot_use.range.start.min(range.start);
        if range.end > slot_use.range.end {
            (slot_use.range.end, slot_use.range_command) = (range.end, index);
        }
        slot_use.written |= write;
        match command {
            Command::Fill { pattern, .. } if slot_use.offset_alignment.is_none_or(|(a, _)| a < pattern.len()) => {
                slot_use.offset_alignment = Some((pattern.len(), index));
            }
            Command::Dispatch { .. } => {
                slot_use.dispatch.get_or_insert(index);
                if !range.start.is_multiple_of(DISPATCH_ALIGNMENT) {
                    return Err(SubmitError::CommandList(format!(
                        "{} uses slot {slot} from byte {}, which is not a multiple of {DISPATCH_ALIGNMENT} bytes, the granularity of \
                         the shim DMA; copy it to an aligned range first",
                        describe(index, command),
                        range.start
                    )));
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The driver's own kernel behind `executable`.
    fn bare_kernel(
        &mut self,
        executable: &Arc<dyn Executable>,
        what: impl Fn() -> String,
    ) -> Result<Arc<dyn Executable>, SubmitError> {
        let wrapper = (&**executable as &dyn Any).downcast_ref::<ValidatedExecutable>();
        self.adopt(wrapper.map(|w| &w.owner), what)?;
        Ok(wrapper.map_or_else(|| Arc::clone(executable), |wrapper| Arc::clone(&wrapper.inner)))
    }

    /// All objects of a list have to be of one device.
    fn adopt(&mut self, owner: Option<&Arc<Owner>>, what: impl Fn() -> String) -> Result<(), SubmitError> {
        match (owner, &self.owner) {
            (None, _) => Err(SubmitError::CommandList(format!(
                "{} was made without the validation layer; make it with the device that owns the queue",
                what()
            ))),
            (Some(owner), None) => {
                self.owner = Some(Arc::clone(owner));
                Ok(())
            }
            (Some(owner), Some(known)) if Arc::ptr_eq(owner, known) => Ok(()),
            (Some(owner), Some(known)) => Err(SubmitError::CommandList(format!(
                "{} belongs to {}, earlier ones to {}; a list can hold objects of one device only",
                what(),
                owner.name(),
                known.name()
            ))),
        }
    }

    /// The same command on the driver's own objects. The buffers have been recognised before.
    fn unwrap(&mut self, index: usize, command: &Command) -> Result<Command, SubmitError> {
        let bare = |reference: &BufferRef| {
            let mut bare = reference.clone();
            if let RangeOf::Buffer(buffer) = &reference.of
                && let Some(wrapper) = wrapper(buffer)
            {
                bare.of = RangeOf::Buffer(Arc::clone(&wrapper.inner));
            }
            bare
        };
        Ok(match command {
            Command::Fill { pattern, target } => Command::Fill { pattern: pattern.clone(), target: bare(target) },
            Command::Update { data, target } => Command::Update { data: Arc::clone(data), target: bare(target) },
            Command::Copy { source, target } => Command::Copy { source: bare(source), target: bare(target) },
            Command::Dispatch { executable, bindings, outputs } => {
                let what = || format!("the kernel of {}", describe(index, command));
                Command::Dispatch {
                    executable: self.bare_kernel(executable, what)?,
                    bindings: bindings.iter().map(bare).collect(),
                    outputs: *outputs,
                }
            }
            Command::HostCall { function, inputs, output } => Command::HostCall {
                function: Arc::clone(function),
                inputs: inputs.iter().map(bare).collect(),
                output: bare(output),
            },
            Command::Barrier => Command::Barrier,
        })
    }
}
