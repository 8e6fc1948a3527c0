//! Where the stacks of cores lie relative to the buffers of their tiles' DMA.
//!
//! A compiled program has its stack in its tile's memory, usually in front of buffers that the DMA fills. If the stack outgrows its
//! room, it and they overwrite each other without notice (mlir-air pull request 1354). Where it shared a bank with such buffers, wrong
//! results were seen, and the cause is not known (mlir-air pull request 1998). Descriptors that the instruction stream changes word by
//! word count as the configuration has them.

use aie_emulator::design::{Action, Address, Descriptor, Design, Owner};
use aie_isa::BANK_BYTES;
use aie_jit_native::array::OWN_MEMORY;
use aie_jit_native::check::Stack;
use std::ops::Range;

/// What is wrong with the stack of a tile's core: the severity, and the text. Addresses are those that the core uses.
pub fn finding(design: &Design, tile: (u8, u8), stack: &Stack) -> Option<(&'static str, String)> {
    let stack = match stack {
        Stack::Bytes(stack) if stack.is_empty() => return None,
        Stack::Bytes(stack) => stack,
        Stack::Unknown(why) => {
            let what = format!(
                "how deep the stack gets is not known: {why}; compare the compiler's frame sizes with the room that the linker script \
                 leaves"
            );
            return Some(("warning", what));
        }
    };
    let taken = format!("the stack takes {} bytes, {}", stack.len(), text(stack));
    let own = OWN_MEMORY..OWN_MEMORY + design.data_bytes.0 as u32;
    if stack.start < own.start || stack.end > own.end {
        let what = format!("{taken}, and the core's own memory is {}: move its start, or put less on it", text(&own));
        return Some(("error", what));
    }
    let buffers = buffers(design, tile);
    let bank = |address: u32| (address - OWN_MEMORY) / BANK_BYTES;
    let overlaps = |buffer: &Range<u32>| buffer.start < stack.end && stack.start < buffer.end;
    let shares_bank =
        |buffer: &Range<u32>| bank(buffer.start) <= bank(stack.end - 1) && bank(stack.start) <= bank(buffer.end - 1);
    if let Some(found) = among(&buffers, overlaps) {
        let what = format!(
            "{taken}, which overlap {found} of the tile's DMA: leave the stack more room (stack_size in mlir-aie), or put less on it"
        );
        return Some(("error", what));
    }
    let what = format!(
        "{taken}, in one bank ({BANK_BYTES} bytes) with {} of the tile's DMA: a design with that had wrong results (mlir-air pull request \
         1998); give the stack a bank without buffers of the DMA",
        among(&buffers, shares_bank)?
    );
    Some(("warning", what))
}

fn text(bytes: &Range<u32>) -> String {
    format!("{:#x} to {:#x}", bytes.start, bytes.end)
}

/// The bytes that a tile's DMA reads and writes, with the numbers of their descriptors.
fn buffers(design: &Design, tile: (u8, u8)) -> Vec<(u8, Range<u32>)> {
    let configured = design.tile(tile.0, tile.1).into_iter().flat_map(|tile| &tile.descriptors);
    let streamed = design.stream.iter().flat_map(|stream| stream.actions()).filter_map(|action| match action {
        Action::Descriptor { tile: of, descriptor } if of.key() == tile => Some(descriptor),
        _ => None,
    });
    let used = |descriptor: &&Descriptor| {
        let own = matches!(descriptor.address, Address::Tile { owner: Owner::Own, .. });
        own && descriptor.valid && descriptor.words > 0
    };
    let bytes = |descriptor: &Descriptor| {
        let [start, end] = [descriptor.span().start, descriptor.span().end]
            .map(|byte| u32::try_from(byte).unwrap_or(u32::MAX).saturating_add(OWN_MEMORY));
        (descriptor.id, start..end)
    };
    configured.chain(streamed).filter(used).map(bytes).collect()
}

/// The first buffer for which `holds` is true, and how many others there are.
fn among(buffers: &[(u8, Range<u32>)], holds: impl Fn(&Range<u32>) -> bool) -> Option<String> {
    let mut found = buffers.iter().filter(|(_, bytes)| holds(bytes));
    let (id, bytes) = found.next()?;
    let more = match found.count() {
        0 => String::new(),
        others => format!(" and {others} more"),
    };
    Some(format!("BD {id} ({}){more}", text(bytes)))
}
