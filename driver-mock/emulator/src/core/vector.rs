//! Operations of the mv slot on 512-bit vectors.

use super::lanes::{self, Bytes, of_width};
use super::operation::{Compare, LaneType, Lanes};
use aie_isa::InstructionSet;

const BITS: u32 = 512;
const BYTES: usize = 64;

/// Lane by lane. `select` has a bit for each lane.
pub fn lanes(operation: Lanes, bits: u32, a: &Bytes, b: &Bytes, select: u64, out: &mut Bytes) {
    of_width!(lanes_of(bits, operation, a, b, select, out));
}

#[inline(always)]
fn lanes_of(bits: u32, operation: Lanes, a: &Bytes, b: &Bytes, select: u64, out: &mut Bytes) {
    for lane in 0..(BITS / bits) as usize {
        let (x, y) = (lanes::get(a, bits, lane), lanes::get(b, bits, lane));
        let chosen = select >> lane & 1 == 1;
        let value = match operation {
            Lanes::Add => x.wrapping_add(y),
            Lanes::Sub => x.wrapping_sub(y),
            Lanes::And => x & y,
            Lanes::Or => x | y,
            Lanes::Select => {
                if chosen {
                    y
                } else {
                    x
                }
            }
            Lanes::AddSub => {
                if chosen {
                    x.wrapping_sub(y)
                } else {
                    x.wrapping_add(y)
                }
            }
        };
        lanes::set(out, bits, lane, value);
    }
}

/// A lane in an order that compares as its number does.
#[inline(always)]
fn ordered(bytes: &Bytes, lane_type: LaneType, lane: usize, signed: bool) -> i64 {
    match lane_type {
        LaneType::Integer(bits) => lanes::number(bytes, bits, lane, signed),
        LaneType::Bfloat16 => {
            let bits = lanes::get(bytes, 16, lane).cast_signed();
            let magnitude = bits & 0x7fff;
            if bits & 0x8000 != 0 { -magnitude } else { magnitude }
        }
    }
}

fn is_nan(lane_type: LaneType, lane: u64) -> bool {
    lane_type == LaneType::Bfloat16 && lane & 0x7fff > 0x7f80
}

/// Compares lanes; gives a bit for each. Lanes with the result go to `out`.
pub fn compare(operation: Compare, lane_type: LaneType, signed: bool, a: &Bytes, b: &Bytes, out: &mut Bytes) -> u64 {
    match lane_type {
        LaneType::Integer(bits) => of_width!(compare_integers(bits, operation, signed, a, b, out)),
        LaneType::Bfloat16 => compare_lanes(operation, 16, LaneType::Bfloat16, signed, a, b, out),
    }
}

#[inline(always)]
fn compare_integers(bits: u32, operation: Compare, signed: bool, a: &Bytes, b: &Bytes, out: &mut Bytes) -> u64 {
    compare_lanes(operation, bits, LaneType::Integer(bits), signed, a, b, out)
}

#[inline(always)]
fn compare_lanes(
    operation: Compare,
    bits: u32,
    lane_type: LaneType,
    signed: bool,
    a: &Bytes,
    b: &Bytes,
    out: &mut Bytes,
) -> u64 {
    let mut flags = 0;
    for lane in 0..(BITS / bits) as usize {
        let (x, y) = (ordered(a, lane_type, lane, signed), ordered(b, lane_type, lane, signed));
        let (left, right) = (lanes::get(a, bits, lane), lanes::get(b, bits, lane));
        let difference = left.wrapping_sub(right);
        let (flag, value) = match operation {
            // With a NaN never, as seen on silicon for AIE2.
            Compare::Less => (x < y && !is_nan(lane_type, left) && !is_nan(lane_type, right), 0),
            Compare::GreaterEqual => (x >= y, 0),
            Compare::MaxLess => (x < y, if x < y { right } else { left }),
            Compare::MinGreaterEqual => (x >= y, if x >= y { right } else { left }),
            Compare::SubLess => (x < y, difference),
            Compare::SubGreaterEqual => (x >= y, difference),
            Compare::MaxDifference => (x < y, if x < y { 0 } else { difference }),
            Compare::AbsGreaterZero => (x > 0, x.unsigned_abs()),
            Compare::NegGreaterZero => (x > 0, left.wrapping_neg()),
            Compare::NotLessZero => (x < 0, !left),
            Compare::EqualZero => (left == 0, 0),
        };
        flags |= u64::from(flag) << lane;
        lanes::set(out, bits, lane, value);
    }
    flags
}

/// One value in all lanes.
pub fn broadcast(bits: u32, value: &[u8], out: &mut Bytes) {
    of_width!(broadcast_lanes(bits, value, out));
}

#[inline(always)]
fn broadcast_lanes(bits: u32, value: &[u8], out: &mut Bytes) {
    let size = bits as usize / 8;
    for lane in out[..BYTES].chunks_exact_mut(size) {
        lane.copy_from_slice(&value[..size]);
    }
}

/// All lanes move up by one; the value becomes lane 0.
pub fn push_low(bits: u32, value: &[u8], vector: &Bytes, out: &mut Bytes) {
    let size = bits as usize / 8;
    out[size..BYTES].copy_from_slice(&vector[..BYTES - size]);
    out[..size].copy_from_slice(&value[..size]);
}

/// All lanes move down by one; the value becomes the top lane.
pub fn push_high(bits: u32, vector: &Bytes, value: &[u8], out: &mut Bytes) {
    let size = bits as usize / 8;
    out[..BYTES - size].copy_from_slice(&vector[size..BYTES]);
    out[BYTES - size..BYTES].copy_from_slice(&value[..size]);
}

/// 64 bytes from byte `from` on of `a` followed by `b`. Beyond both, AIE2 has zeros, as seen on silicon; None for other amounts above 64.
pub fn shift(set: InstructionSet, a: &Bytes, b: &Bytes, from: u32, out: &mut Bytes) -> Option<()> {
    let from = usize::try_from(from).ok()?;
    match set {
        InstructionSet::Aie2 if from >= 2 * BYTES => {
            out[..BYTES].fill(0);
            return Some(());
        }
        InstructionSet::Aie2 | InstructionSet::Aie2p => {}
    }
    let from = Some(from).filter(|from| *from <= BYTES)?;
    out[..BYTES - from].copy_from_slice(&a[from..BYTES]);
    out[BYTES - from..BYTES].copy_from_slice(&b[..from]);
    Some(())
}

/// A matrix of R rows and C columns of elements of `bits` bits, transposed; of its 1024 bits one half.
#[derive(Clone, Copy, Debug)]
struct Transposition {
    bits: u32,
    rows: usize,
    columns: usize,
    high: bool,
}

fn transposition(mode: u32) -> Option<Transposition> {
    let (bits, rows, columns) = match mode / 2 {
        0 => (8, 64, 2),
        1 => (16, 32, 2),
        2 => (32, 16, 2),
        3 => (64, 8, 2),
        4 => (128, 4, 2),
        5 => (256, 2, 2),
        6 => (128, 2, 4),
        7 => (64, 2, 8),
        8 => (32, 2, 16),
        9 => (16, 2, 32),
        10 => (8, 2, 64),
        11 => (512, 1, 2),
        12 => (16, 16, 4),
        13 => (16, 4, 16),
        15 => (32, 8, 4),
        16 => (32, 4, 8),
        26 => (16, 8, 8),
        _ => return None,
    };
    Some(Transposition { bits, rows, columns, high: mode % 2 == 1 })
}

/// The transpositions of one vector, which use all of its 512 bits.
fn single(mode: u32) -> Option<(u32, usize, usize)> {
    Some(match mode {
        28 => (16, 8, 4),
        29 => (16, 4, 8),
        34 => (32, 4, 4),
        35 => (8, 8, 8),
        36 => (8, 16, 4),
        37 => (8, 4, 16),
        44 => (16, 16, 2),
        45 => (16, 2, 16),
        48 => (32, 8, 2),
        49 => (32, 2, 8),
        50 => (64, 4, 2),
        51 => (64, 2, 4),
        _ => return None,
    })
}

/// The transpositions within groups of `rows` x `columns` elements of one vector, of AIE2 only.
fn grouped(mode: u32) -> Option<(u32, usize, usize)> {
    Some(match mode {
        39 => (16, 4, 4),
        40 => (16, 4, 2),
        41 => (16, 2, 4),
        42 => (16, 8, 2),
        43 => (16, 2, 8),
        46 => (8, 8, 4),
        47 => (8, 4, 8),
        _ => return None,
    })
}

/// Modes that reverse the elements within groups: bits of an element, elements of a group.
fn flip(mode: u32) -> Option<(usize, usize)> {
    match mode {
        38 => Some((16, 2)),
        54 => Some((32, 16)),
        55 => Some((8, 4)),
        _ => None,
    }
}

/// Transposes matrices of `rows` x `columns` elements of `bits` bits that lie one after the other in `from`. Of the elements of the result
/// those from `first` on go to `out`.
fn transpose((bits, rows, columns): (u32, usize, usize), first: usize, from: &[u8], out: &mut Bytes) {
    of_width!(transpose_elements(bits, (rows, columns), first, from, out));
}

#[inline(always)]
fn transpose_elements(bits: u32, (rows, columns): (usize, usize), first: usize, from: &[u8], out: &mut Bytes) {
    // All sizes are powers of two: divisions would take longer than the copies.
    let (size, log_rows, log_columns) = (bits as usize / 8, rows.trailing_zeros(), columns.trailing_zeros());
    let group = !(rows * columns - 1);
    for (index, element) in out[..BYTES].chunks_exact_mut(size).enumerate() {
        let index = index + first;
        let at = (index & group) + ((index & (rows - 1)) << log_columns) + ((index & !group) >> log_rows);
        element.copy_from_slice(&from[at * size..(at + 1) * size]);
    }
}

/// Permutes elements of two vectors by a mode; None for modes whose meaning is not public. Of AIE2 all modes are known from silicon.
pub fn shuffle(set: InstructionSet, mode: u32, a: &Bytes, b: &Bytes, out: &mut Bytes) -> Option<()> {
    // AIE2 looks at six bits.
    let (mode, has_groups) = match set {
        InstructionSet::Aie2 if mode & 63 >= 48 => {
            out[..BYTES].fill(0);
            out[0] = a[0];
            return Some(());
        }
        InstructionSet::Aie2 => (mode & 63, true),
        InstructionSet::Aie2p => (mode, false),
    };
    if let Some((bits, count)) = flip(mode) {
        let size = bits / 8;
        for (out, group) in out[..BYTES].chunks_exact_mut(size * count).zip(a.chunks_exact(size * count)) {
            for (out, element) in out.chunks_exact_mut(size).zip(group.chunks_exact(size).rev()) {
                out.copy_from_slice(element);
            }
        }
        return Some(());
    }
    if let Some(matrix) = single(mode).or_else(|| grouped(mode).filter(|_| has_groups)) {
        transpose(matrix, 0, a, out);
        return Some(());
    }
    let Transposition { bits, rows, columns, high } = transposition(mode)?;
    let mut both = [0; 2 * BYTES];
    both[..BYTES].copy_from_slice(&a[..BYTES]);
    both[BYTES..].copy_from_slice(&b[..BYTES]);
    transpose((bits, rows, columns), if high { rows * columns / 2 } else { 0 }, &both, out);
    Some(())
}

/// Permutes the exponents of two blocked vectors, eight bytes each; None for modes whose meaning is not public.
pub fn shuffle_exponents(mode: u32, a: &[u8], b: &[u8], out: &mut [u8]) -> Option<()> {
    let (bits, rows, columns) = match mode / 2 {
        0 => (64, 1, 2),
        1 => (32, 2, 2),
        2 => (16, 4, 2),
        3 => (8, 8, 2),
        4 => (16, 2, 4),
        5 => (8, 2, 8),
        _ => return None,
    };
    let (size, first) = (bits / 8, if mode % 2 == 1 { rows * columns / 2 } else { 0 });
    for (index, element) in out.chunks_exact_mut(size).enumerate() {
        let index = index + first;
        let from = (index % rows * columns + index / rows) * size;
        let source = if from < a.len() { &a[from..] } else { &b[from - a.len()..] };
        element.copy_from_slice(&source[..size]);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting() -> (Bytes, Bytes) {
        let (mut a, mut b) = ([0; 256], [0; 256]);
        for byte in 0..BYTES {
            a[byte] = byte as u8;
            b[byte] = (byte + BYTES) as u8;
        }
        (a, b)
    }

    #[test]
    fn two_columns_are_split_into_even_and_odd_elements() {
        let ((a, b), mut out) = (counting(), [0; 256]);
        shuffle(InstructionSet::Aie2p, 2, &a, &b, &mut out).unwrap();
        assert_eq!(out[..6], [0, 1, 4, 5, 8, 9]);
        shuffle(InstructionSet::Aie2p, 3, &a, &b, &mut out).unwrap();
        assert_eq!(out[..6], [2, 3, 6, 7, 10, 11]);
        shuffle(InstructionSet::Aie2p, 23, &a, &b, &mut out).unwrap();
        assert_eq!(out[..BYTES], b[..BYTES]);
        assert!(shuffle(InstructionSet::Aie2p, 46, &a, &b, &mut out).is_none());
    }

    #[test]
    fn every_permutation_keeps_all_elements() {
        let (a, b) = counting();
        for mode in (0..28).chain(30..34).step_by(2) {
            let (mut low, mut high) = ([0; 256], [0; 256]);
            shuffle(InstructionSet::Aie2p, mode, &a, &b, &mut low).unwrap();
            shuffle(InstructionSet::Aie2p, mode + 1, &a, &b, &mut high).unwrap();
            let mut all = [&low[..BYTES], &high[..BYTES]].concat();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..128), "mode {mode}");
        }
    }

    #[test]
    fn single_vectors_are_transposed_and_flipped() {
        let ((a, b), mut out) = (counting(), [0; 256]);
        shuffle(InstructionSet::Aie2p, 28, &a, &b, &mut out).unwrap();
        assert_eq!(out[..8], [0, 1, 8, 9, 16, 17, 24, 25]);
        shuffle(InstructionSet::Aie2p, 50, &a, &b, &mut out).unwrap();
        assert_eq!((out[0], out[8], out[32]), (0, 16, 8));
        shuffle(InstructionSet::Aie2p, 38, &a, &b, &mut out).unwrap();
        assert_eq!(out[..8], [2, 3, 0, 1, 6, 7, 4, 5]);
        shuffle(InstructionSet::Aie2p, 54, &a, &b, &mut out).unwrap();
        assert_eq!(out[..5], [60, 61, 62, 63, 56]);
        shuffle(InstructionSet::Aie2p, 55, &a, &b, &mut out).unwrap();
        assert_eq!(out[..5], [3, 2, 1, 0, 7]);
        for mode in [28, 29, 34, 35, 36, 37, 38, 44, 45, 48, 49, 50, 51, 54, 55] {
            shuffle(InstructionSet::Aie2p, mode, &a, &b, &mut out).unwrap();
            let mut all = out[..BYTES].to_vec();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..64), "mode {mode}");
        }
    }

    #[test]
    fn exponents_are_shuffled_apart() {
        let (a, b, mut out) = ([0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15], [0; 8]);
        shuffle_exponents(1, &a, &b, &mut out).unwrap();
        assert_eq!(out, b);
        shuffle_exponents(6, &a, &b, &mut out).unwrap();
        assert_eq!(out, [0, 2, 4, 6, 8, 10, 12, 14]);
        shuffle_exponents(11, &a, &b, &mut out).unwrap();
        assert_eq!(out, [4, 12, 5, 13, 6, 14, 7, 15]);
        assert!(shuffle_exponents(12, &a, &b, &mut out).is_none());
    }

    #[test]
    fn shifts_and_pushes_move_bytes() {
        let ((a, b), mut out) = (counting(), [0; 256]);
        shift(InstructionSet::Aie2p, &a, &b, 3, &mut out).unwrap();
        assert_eq!((out[0], out[60], out[61]), (3, 63, 64));
        assert!(shift(InstructionSet::Aie2p, &a, &b, 65, &mut out).is_none());
        push_low(16, &[9, 8], &a, &mut out);
        assert_eq!(out[..4], [9, 8, 0, 1]);
        push_high(32, &a, &[9, 8, 7, 6], &mut out);
        assert_eq!((out[0], &out[60..64]), (4, &[9, 8, 7, 6][..]));
    }

    #[test]
    fn comparisons_give_a_bit_for_each_lane() {
        let (mut a, mut b, mut out) = ([0; 256], [0; 256], [0; 256]);
        lanes::set(&mut a, 16, 0, 0xfffe);
        lanes::set(&mut b, 16, 1, 5);
        let flags = compare(Compare::MaxLess, LaneType::Integer(16), true, &a, &b, &mut out);
        assert_eq!((flags, lanes::get(&out, 16, 0), lanes::get(&out, 16, 1)), (3, 0, 5));
        let flags = compare(Compare::MaxLess, LaneType::Integer(16), false, &a, &b, &mut out);
        assert_eq!((flags, lanes::get(&out, 16, 0)), (2, 0xfffe));
        // -2 < -1 as bf16.
        lanes::set(&mut a, 16, 0, 0xc000);
        lanes::set(&mut b, 16, 0, 0xbf80);
        assert_eq!(compare(Compare::Less, LaneType::Bfloat16, true, &a, &b, &mut out) & 1, 1);
    }
}
