//! Vectors as lanes of 4 to 64 bits, lane 0 lowest.

use super::MOST_BYTES;

/// The bytes of a register, or of what an instruction makes of one.
pub type Bytes = [u8; MOST_BYTES];

/// Lane `index` of `bits` bits, with zeros above.
#[inline(always)]
pub fn get(bytes: &[u8], bits: u32, index: usize) -> u64 {
    let at = index * bits as usize / 8;
    match bits {
        4 => u64::from(bytes[at] >> (index % 2 * 4) & 0xf),
        8 => bytes[at].into(),
        16 => u16::from_le_bytes([bytes[at], bytes[at + 1]]).into(),
        32 => u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]).into(),
        _ => {
            let mut lane = [0; 8];
            lane.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(lane)
        }
    }
}

/// The same as a number, with the sign if there is one.
#[inline(always)]
pub fn number(bytes: &[u8], bits: u32, index: usize, signed: bool) -> i64 {
    let lane = get(bytes, bits, index);
    if signed { (lane << (64 - bits)).cast_signed() >> (64 - bits) } else { lane.cast_signed() }
}

/// The first lanes as numbers; of 4, 8 or 16 bits.
pub fn numbers<T: From<i8> + From<u8> + TryFrom<i32> + Default>(bytes: &[u8], bits: u32, signed: bool, out: &mut [T]) {
    match (bits, signed) {
        (8, true) => out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = byte.cast_signed().into()),
        (8, false) => out.iter_mut().zip(bytes).for_each(|(out, byte)| *out = (*byte).into()),
        (16, true) => out.iter_mut().zip(bytes.as_chunks().0).for_each(|(out, lane)| {
            *out = T::try_from(i16::from_le_bytes(*lane).into()).unwrap_or_default();
        }),
        (16, false) => out.iter_mut().zip(bytes.as_chunks().0).for_each(|(out, lane)| {
            *out = T::try_from(u16::from_le_bytes(*lane).into()).unwrap_or_default();
        }),
        _ => out.iter_mut().enumerate().for_each(|(index, out)| {
            *out = T::try_from(number(bytes, bits, index, signed) as i32).unwrap_or_default();
        }),
    }
}

/// Sets the lanes of an accumulator, of 32 or 64 bits.
pub fn set_accumulators(bytes: &mut Bytes, bits: u32, values: &[i64]) {
    if bits == 32 {
        bytes.as_chunks_mut().0.iter_mut().zip(values).for_each(|(lane, value)| *lane = (*value as i32).to_le_bytes());
    } else {
        bytes.as_chunks_mut().0.iter_mut().zip(values).for_each(|(lane, value)| *lane = value.to_le_bytes());
    }
}

/// Sets lane `index` to the low bits of a value.
#[inline(always)]
pub fn set(bytes: &mut [u8], bits: u32, index: usize, value: u64) {
    let at = index * bits as usize / 8;
    match bits {
        4 => {
            let shift = index % 2 * 4;
            bytes[at] = bytes[at] & !(0xf << shift) | ((value & 0xf) as u8) << shift;
        }
        // Constant lengths, which take no call.
        8 => bytes[at] = value as u8,
        16 => bytes[at..at + 2].copy_from_slice(&(value as u16).to_le_bytes()),
        32 => bytes[at..at + 4].copy_from_slice(&(value as u32).to_le_bytes()),
        _ => bytes[at..at + bits as usize / 8].copy_from_slice(&value.to_le_bytes()[..bits as usize / 8]),
    }
}

/// Calls a function whose first argument is the width of lanes with a constant for it: then its loops over lanes are vector
/// instructions of the host.
macro_rules! of_width {
    ($function:ident($bits:expr $(, $argument:expr)*)) => {
        match $bits {
            8 => $function(8 $(, $argument)*),
            16 => $function(16 $(, $argument)*),
            32 => $function(32 $(, $argument)*),
            64 => $function(64 $(, $argument)*),
            bits => $function(bits $(, $argument)*),
        }
    };
}
pub(super) use of_width;

/// A 32-bit word at the start.
pub fn word(bytes: &[u8]) -> u32 {
    get(bytes, 32, 0) as u32
}
