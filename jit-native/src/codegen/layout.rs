//! From bundles to bytes: sizes of bundles, alignment, addresses.
//!
//! What is jumped to is aligned to 16 bytes, as are the first and the last bundle of a hardware loop; the last one is of the
//! longest format. Nothing is put between bundles for that: those before are written in longer formats.

use super::allocate::Assignment;
use super::block::End;
use super::error::CoreError;
use super::operation::{Label, Val};
use super::reservation::{Formats, bit};
use super::schedule::Scheduled;
use super::timing::Context;
use aie_isa::{Decoded, Value};

/// Alignment of what is jumped to, and size of the last bundle of a loop, in bytes.
const ALIGNMENT: usize = 16;
/// Bundles, and bytes, that lie between the last instruction that sets up a hardware loop and the loop's last bundle.
const SETUP_BUNDLES: usize = 7;
const SETUP_BYTES: usize = 112;
/// Program memory of a core.
pub(super) const PROGRAM_BYTES: usize = 16 * 1024;

/// Program memory, and the address of each block.
pub(super) struct Image {
    pub code: Vec<u8>,
    pub blocks: Vec<u32>,
}

/// A program that does not fit.
pub(super) struct TooLong {
    pub bytes: usize,
    /// The bytes of each block.
    pub by_block: Vec<usize>,
}

/// Adds bundles that do nothing where a loop is set up too close to its end.
pub(super) fn keep_setup_apart(blocks: &mut [Scheduled]) {
    for index in 0..blocks.len() {
        let Some(setup) = blocks[index].setup else {
            continue;
        };
        let between = blocks[index].bundles.len() - setup - 1 + before_end(blocks, index);
        for _ in between..SETUP_BUNDLES {
            blocks[index].bundles.push(Vec::new());
        }
    }
}

/// The bundles after a block and before the last of the loop that it sets up.
fn before_end(blocks: &[Scheduled], setup: usize) -> usize {
    let mut count = 0;
    for block in &blocks[setup + 1..] {
        count += block.bundles.len();
        if matches!(block.end, End::Loop) {
            return count.saturating_sub(1);
        }
    }
    count
}

/// Lays out the program.
pub(super) fn layout(
    context: &Context<'_>,
    formats: &Formats,
    blocks: &[Scheduled],
    labels: &[usize],
    assignment: &Assignment,
) -> Result<Result<Image, TooLong>, CoreError> {
    let mut starts = Vec::new();
    let mut bundles = Vec::new();
    let (mut aligned, mut long) = (Vec::new(), Vec::new());
    for block in blocks {
        starts.push(bundles.len());
        if block.target {
            aligned.push(bundles.len());
        }
        bundles.extend(&block.bundles);
        if matches!(block.end, End::Loop) {
            aligned.push(bundles.len() - 1);
            long.push(bundles.len() - 1);
        }
    }
    let slots: Vec<u32> =
        bundles.iter().map(|rows| rows.iter().fold(0, |slots, row| slots | bit(row.instruction.slot))).collect();
    let mut sizes: Vec<Vec<usize>> =
        slots.iter().map(|slots| formats.sizes(*slots).iter().map(|bits| *bits as usize / 8).collect()).collect();
    for index in &long {
        sizes[*index] = vec![ALIGNMENT];
    }
    for (index, block) in blocks.iter().enumerate() {
        if let Some(setup) = block.setup {
            let first = starts[index] + setup + 1;
            let end = long.iter().copied().find(|end| *end >= first).unwrap_or(first);
            widen(&mut sizes[first..end]);
        }
    }
    let bytes = choose(&sizes, &aligned)?;
    let mut addresses = vec![0];
    for size in &bytes {
        addresses.push(addresses[addresses.len() - 1] + size);
    }
    let total = addresses[addresses.len() - 1].next_multiple_of(ALIGNMENT);
    if total > PROGRAM_BYTES {
        let ends = starts.iter().skip(1).chain([&bytes.len()]).map(|end| addresses[*end]).collect::<Vec<_>>();
        let by_block = starts.iter().zip(ends).map(|(start, end)| end - addresses[*start]).collect();
        return Ok(Err(TooLong { bytes: total, by_block }));
    }
    let address = |label: Label| match label {
        Label::Block(label) => addresses[starts[labels[label]]],
        Label::LastBundleOf(label) => addresses[starts[labels[label]] + blocks[labels[label]].bundles.len() - 1],
    };
    let mut code = Vec::with_capacity(total);
    for (rows, size) in bundles.iter().zip(&bytes) {
        let decoded: Option<Vec<Decoded<'_>>> = rows
            .iter()
            .map(|row| {
                let mut decoded = context.decoded(row, |reg| assignment.register(context, reg))?;
                for (value, place) in row.values.iter().zip(&mut decoded.values) {
                    if let Val::Label(label) = value {
                        *place = Value::Immediate(address(*label) as i64);
                    }
                }
                Some(decoded)
            })
            .collect();
        let decoded = decoded.ok_or_else(|| CoreError::Schedule("an operand has no register".into()))?;
        let bundle = context.isa.bundle_of(&decoded, *size as u32 * 8)?;
        code.extend(context.isa.encode(&bundle)?);
    }
    let nop = context.isa.bundle(&[]).and_then(|nop| context.isa.encode(&nop))?;
    while code.len() < total {
        code.extend(&nop);
    }
    Ok(Ok(Image { code, blocks: starts.iter().map(|start| addresses[*start] as u32).collect() }))
}

/// Takes longer formats for the bundles nearest to the end until all together have enough bytes.
fn widen(sizes: &mut [Vec<usize>]) {
    let smallest = |sizes: &Vec<usize>| sizes.first().copied().unwrap_or(0);
    let mut sum: usize = sizes.iter().map(smallest).sum();
    for sizes in sizes.iter_mut().rev() {
        if sum >= SETUP_BYTES {
            return;
        }
        sum += ALIGNMENT - smallest(sizes);
        *sizes = vec![ALIGNMENT];
    }
}

/// Chooses a size for each bundle, so that those in `aligned` begin at multiples of the alignment and the program is short.
fn choose(sizes: &[Vec<usize>], aligned: &[usize]) -> Result<Vec<usize>, CoreError> {
    let mut chosen = Vec::with_capacity(sizes.len());
    let mut begin = 0;
    let ends = aligned.iter().copied().filter(|end| *end > 0).map(|end| (end, true));
    for (end, exact) in ends.chain([(sizes.len(), false)]) {
        if end < begin {
            continue;
        }
        chosen.extend(segment(&sizes[begin..end], exact)?);
        begin = end;
    }
    Ok(chosen)
}

/// The shortest choice for bundles that begin at an aligned place; `exact`: that end at one too.
fn segment(sizes: &[Vec<usize>], exact: bool) -> Result<Vec<usize>, CoreError> {
    // By bundle and remainder: the fewest bytes, and the size of the last bundle.
    let mut best: Vec<[Option<(usize, usize)>; ALIGNMENT]> = vec![[None; ALIGNMENT]];
    best[0][0] = Some((0, 0));
    for (index, sizes) in sizes.iter().enumerate() {
        let mut next = [None; ALIGNMENT];
        for (remainder, (bytes, _)) in best[index].iter().enumerate().filter_map(|(r, found)| Some((r, (*found)?))) {
            for size in sizes {
                let place: &mut Option<(usize, usize)> = &mut next[(remainder + size) % ALIGNMENT];
                if place.is_none_or(|(fewest, _)| bytes + size < fewest) {
                    *place = Some((bytes + size, *size));
                }
            }
        }
        best.push(next);
    }
    let none = || CoreError::Schedule("no sizes of bundles reach the alignment".into());
    let last = best.len() - 1;
    let mut remainder = if exact {
        0
    } else {
        let found = (0..ALIGNMENT).filter_map(|r| Some((best[last][r]?.0, r))).min();
        found.ok_or_else(none)?.1
    };
    let mut chosen = Vec::new();
    for index in (1..=last).rev() {
        let (_, size) = best[index][remainder].ok_or_else(none)?;
        chosen.push(size);
        remainder = (remainder + ALIGNMENT - size % ALIGNMENT) % ALIGNMENT;
    }
    chosen.reverse();
    Ok(chosen)
}
