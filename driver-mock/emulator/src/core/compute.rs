//! What instructions on vectors and memory compute, once all their sources have been read.

use super::lanes::{self, Bytes};
use super::lower::{Input, MOST_SOURCES, MicroOperation, Sign};
use super::multiply;
use super::operation::{Operation, Widen};
use super::rounding::Saturation;
use super::shape::Operands;
use super::{Fault, MOST_BYTES};
use super::{vector, width};
use aie_isa::InstructionSet;

/// Size of a register with 64 mantissas and eight exponents.
const BLOCK_FLOAT_BYTES: usize = 72;

/// The result of an instruction in `out`, and the flags of a comparison.
///
/// `cycle`: what a program reads as the number of cycles.
pub fn compute(
    operation: &MicroOperation,
    set: InstructionSet,
    cycle: u64,
    inputs: &[Bytes; MOST_SOURCES],
    memory: &Bytes,
    out: &mut Bytes,
) -> Result<Option<u64>, Fault> {
    use Operation as O;
    let word = |source: usize| lanes::word(&inputs[source]);
    let control = |index: Option<u8>| index.map_or(0, |index| word(usize::from(index)));
    let signed = match operation.sign {
        Sign::Fixed(signed) => signed,
        Sign::Source(source) => word(source.into()) & 1 == 1,
    };
    let saturation = Saturation(control(operation.controls.saturation));
    let (mode, rounding) = (control(operation.controls.mode), control(operation.controls.rounding));
    let source_bytes = |source: usize| match operation.sources.get(source).map(|source| &source.input) {
        Some(Input::Register(place)) => place.bytes.into(),
        _ => 8,
    };
    let source_count = operation.sources.len();
    let is_strict = match set {
        InstructionSet::Aie2 => false,
        InstructionSet::Aie2p => true,
    };
    let target_bytes = operation.targets.first().map_or(0, |target| usize::from(target.place.bytes));
    let unmodelled = |detail: String| Fault::Unmodelled { key: operation.instruction.key, detail };
    match operation.operation {
        O::Move => {
            let bytes = source_bytes(0);
            out[..bytes].copy_from_slice(&inputs[0][..bytes]);
            out[bytes..target_bytes.max(bytes)].fill(0);
        }
        O::Clear => out[..target_bytes].fill(0),
        O::MultiplyAdd { negate } => {
            let product = word(1).wrapping_mul(word(2));
            let sum = if negate { word(0).wrapping_sub(product) } else { word(0).wrapping_add(product) };
            out[..4].copy_from_slice(&sum.to_le_bytes());
        }
        O::Binary(_) | O::Unary(_) | O::SelectScalar { .. } | O::Branch { .. } => {}
        O::Load { extension, widen: None } => {
            let bytes = operation.access_bytes();
            out[..target_bytes.max(bytes)].fill(0);
            out[..bytes].copy_from_slice(&memory[..bytes]);
            if let Some(extension) = extension {
                let signed = extension == aie_isa::Extension::Sign;
                let number = lanes::number(memory, bytes as u32 * 8, 0, signed) as u32;
                out[..4].copy_from_slice(&number.to_le_bytes());
            }
        }
        O::Load { widen: Some(widen), .. } => {
            let shift = if matches!(widen, Widen::Ups { .. }) { word(0) } else { 0 };
            let bytes = operation.access_bytes();
            width::widen(widen, memory, bytes, target_bytes, signed, shift, mode, saturation, out);
        }
        O::Widen(widen) => {
            let shift = if matches!(widen, Widen::Ups { .. }) { word(1) } else { 0 };
            width::widen(widen, &inputs[0], source_bytes(0), target_bytes, signed, shift, mode, saturation, out);
        }
        O::Store { narrow: None, bytes } => {
            let bytes = bytes as usize;
            out[..bytes].copy_from_slice(&inputs[0][..bytes]);
        }
        O::Store { narrow: Some(narrow), bytes } => {
            let done = width::narrow(
                narrow,
                &inputs[0],
                source_bytes(0),
                bytes as usize,
                signed,
                word(1),
                mode,
                rounding,
                saturation,
                out,
            );
            done.ok_or_else(|| unmodelled(format!(" with rounding mode {rounding}")))?;
        }
        O::Narrow(narrow) => {
            let done = width::narrow(
                narrow,
                &inputs[0],
                source_bytes(0),
                target_bytes,
                signed,
                word(1),
                mode,
                rounding,
                saturation,
                out,
            );
            done.ok_or_else(|| unmodelled(format!(" with rounding mode {rounding}")))?;
        }
        O::FloorFloat => {
            // A source of 512 bits comes with the number of its half.
            let (half, shift) = if source_count == 3 { (word(1) as usize & 1, word(2)) } else { (0, word(1)) };
            width::floor_bf16(&inputs[0], target_bytes / 4 * half, target_bytes / 4, shift, out);
        }
        O::Lanes(what, bits) => {
            let select = lanes::get(&inputs[2], 64, 0) & u64::MAX >> (64 - (512 / bits).min(64));
            vector::lanes(what, bits, &inputs[0], &inputs[1], select, out);
        }
        O::Compare(what, lane_type) => {
            return Ok(Some(vector::compare(what, lane_type, signed, &inputs[0], &inputs[1], out)));
        }
        O::Broadcast(bits) => vector::broadcast(bits, &inputs[0], out),
        O::BroadcastShuffle(bits) => {
            let mut lanes = [0; MOST_BYTES];
            vector::broadcast(bits, &inputs[0], &mut lanes);
            // The second vector of the permutation is zero, as seen on silicon for AIE2.
            shuffle(operation, set, word(1), &lanes, &[0; MOST_BYTES], out)?;
        }
        O::ExtractBroadcastShuffle(bits) => {
            let (lane, size) = (lane_of(operation, true, word(1), bits)?, bits as usize / 8);
            let mut lanes = [0; MOST_BYTES];
            vector::broadcast(bits, &inputs[0][lane * size..(lane + 1) * size], &mut lanes);
            shuffle(operation, set, word(2), &lanes, &lanes, out)?;
        }
        O::Extract(bits) => {
            let lane = lane_of(operation, true, word(1), bits)?;
            let number = lanes::number(&inputs[0], bits, lane, signed);
            out[..8].copy_from_slice(&number.to_le_bytes());
        }
        O::ExtractBroadcast(bits) => {
            let (lane, size) = (lane_of(operation, is_strict, word(1), bits)?, bits as usize / 8);
            vector::broadcast(bits, &inputs[0][lane * size..(lane + 1) * size], out);
        }
        O::Insert(bits) => {
            // Lane 0, or that of the second source.
            let lane = lane_of(operation, is_strict, if source_count == 2 { 0 } else { word(1) }, bits)?;
            out[..64].copy_from_slice(&inputs[0][..64]);
            lanes::set(out, bits, lane, lanes::get(&inputs[source_count - 1], 64, 0));
        }
        O::PushLow(bits) => vector::push_low(bits, &inputs[0], &inputs[1], out),
        O::PushHigh(bits) => vector::push_high(bits, &inputs[0], &inputs[1], out),
        O::Shift => {
            let done = vector::shift(set, &inputs[0], &inputs[1], word(2), out);
            done.ok_or_else(|| unmodelled(format!(" by {} bytes", word(2))))?;
        }
        O::Shuffle => {
            let mode = word(2);
            if source_bytes(0) == BLOCK_FLOAT_BYTES {
                // The mode of the exponents is above that of the mantissas.
                shuffle(operation, set, mode & 0xff, &inputs[0], &inputs[1], out)?;
                let done =
                    vector::shuffle_exponents(mode >> 8, &inputs[0][64..72], &inputs[1][64..72], &mut out[64..72]);
                done.ok_or_else(|| unmodelled(format!(" with mode {mode}")))?;
            } else {
                shuffle(operation, set, mode, &inputs[0], &inputs[1], out)?;
            }
        }
        O::Accumulate(accumulate) => {
            let first = usize::from(accumulate.accumulators);
            let factors = if accumulate.product { 2 } else { 0 };
            let zero = &inputs[MOST_SOURCES - 1];
            let operands = Operands {
                first: if first > 0 { &inputs[0] } else { zero },
                second: if first > 1 { &inputs[1] } else { zero },
                left: &inputs[first],
                right: &inputs[first + 1],
                configuration: word(first + factors),
                bytes: target_bytes,
                left_bytes: source_bytes(first),
                right_bytes: source_bytes(first + 1),
            };
            let done = multiply::accumulate(accumulate, set, &operands, out);
            done.ok_or_else(|| unmodelled(format!(" with configuration {:#x}", operands.configuration)))?;
        }
        O::Counter => out[..8].copy_from_slice(&cycle.to_le_bytes()),
        O::Unmodelled(reason) => return Err(unmodelled(format!(": {reason}"))),
        _ => return Err(unmodelled(String::new())),
    }
    Ok(None)
}

fn shuffle(
    operation: &MicroOperation,
    set: InstructionSet,
    mode: u32,
    a: &Bytes,
    b: &Bytes,
    out: &mut Bytes,
) -> Result<(), Fault> {
    let fault = || Fault::Unmodelled { key: operation.instruction.key, detail: format!(" with mode {mode}") };
    vector::shuffle(set, mode, a, b, out).ok_or_else(fault)
}

/// The lane that an index names. Some instructions of AIE2 take it modulo the number of lanes, as seen on silicon; where that has not been
/// seen (`is_strict`), an index beyond the lanes has no model.
fn lane_of(operation: &MicroOperation, is_strict: bool, index: u32, bits: u32) -> Result<usize, Fault> {
    let lanes = 512 / bits;
    if is_strict && index >= lanes {
        return Err(Fault::Unmodelled { key: operation.instruction.key, detail: format!(" for lane {index}") });
    }
    Ok((index % lanes) as usize)
}
