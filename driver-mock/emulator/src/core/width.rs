//! Numbers between vectors and accumulators: UPS, SRS, packing, conversions.

use super::block_float;
use super::lanes::{self, Bytes, of_width};
use super::operation::{Narrow, Widen};
use super::rounding::{self, Rounding, Saturation};

/// Widths of a UPS or SRS: those of the mnemonic, or, where it has none, by the mode register and the sizes of the operands.
fn widths(narrow: u32, wide: u32, narrow_bytes: usize, wide_bytes: usize, mode: u32) -> (u32, u32) {
    if wide != 0 {
        return (narrow, wide);
    }
    let wide = if mode & 1 == 1 { 64 } else { 32 };
    let lanes = wide_bytes * 8 / wide as usize;
    ((narrow_bytes * 8 / lanes) as u32, wide)
}

/// Calls a function whose first argument is two widths with constants for those that occur most.
macro_rules! of_widths {
    ($function:ident($widths:expr $(, $argument:expr)*)) => {
        match $widths {
            (8, 16) => $function((8, 16) $(, $argument)*),
            (8, 32) => $function((8, 32) $(, $argument)*),
            (16, 32) => $function((16, 32) $(, $argument)*),
            (16, 64) => $function((16, 64) $(, $argument)*),
            (32, 64) => $function((32, 64) $(, $argument)*),
            widths => $function(widths $(, $argument)*),
        }
    };
}

/// Widens `bytes` bytes of `source` into `target_bytes` bytes.
#[allow(clippy::too_many_arguments)]
pub fn widen(
    operation: Widen,
    source: &Bytes,
    bytes: usize,
    target_bytes: usize,
    signed: bool,
    shift: u32,
    mode: u32,
    saturation: Saturation,
    out: &mut Bytes,
) {
    match operation {
        Widen::Ups { from, to } => {
            let widths = widths(from, to, bytes, target_bytes, mode);
            of_widths!(ups(widths, source, target_bytes, signed, shift & 0x3f, saturation, out));
        }
        Widen::Float => {
            for lane in 0..target_bytes / 4 {
                lanes::set(out, 32, lane, lanes::get(source, 16, lane) << 16);
            }
        }
        Widen::Unpack { from } => {
            let from = if from != 0 {
                from
            } else if mode & 1 == 1 {
                8
            } else {
                4
            };
            of_width!(unpack(from, source, target_bytes, signed, out));
        }
    }
}

#[inline(always)]
fn ups(
    (from, to): (u32, u32),
    source: &Bytes,
    bytes: usize,
    signed: bool,
    shift: u32,
    saturation: Saturation,
    out: &mut Bytes,
) {
    // What stays within 64 bits is computed with them.
    if from + shift < 64 {
        for lane in 0..bytes * 8 / to as usize {
            let value = lanes::number(source, from, lane, signed) << shift;
            lanes::set(out, to, lane, saturation.apply_short(value, to, true));
        }
        return;
    }
    for lane in 0..bytes * 8 / to as usize {
        let value = i128::from(lanes::number(source, from, lane, signed)) << shift;
        lanes::set(out, to, lane, saturation.apply(value, to, true));
    }
}

#[inline(always)]
fn unpack(from: u32, source: &Bytes, bytes: usize, signed: bool, out: &mut Bytes) {
    for lane in 0..bytes * 4 / from as usize {
        lanes::set(out, from * 2, lane, lanes::number(source, from, lane, signed).cast_unsigned());
    }
}

/// Narrows `bytes` bytes of `source`. None for a rounding mode without a meaning.
#[allow(clippy::too_many_arguments)]
pub fn narrow(
    operation: Narrow,
    source: &Bytes,
    bytes: usize,
    target_bytes: usize,
    signed: bool,
    shift: u32,
    mode: u32,
    rounding_mode: u32,
    saturation: Saturation,
    out: &mut Bytes,
) -> Option<()> {
    match operation {
        Narrow::Srs { from, to } => {
            let rounding = Rounding::new(rounding_mode)?;
            let widths = widths(to, from, target_bytes, bytes, mode);
            of_widths!(srs(widths, source, bytes, signed, shift, rounding, saturation, out));
        }
        Narrow::Float => {
            let rounding = Rounding::new(rounding_mode)?;
            for lane in 0..bytes / 4 {
                lanes::set(out, 16, lane, rounding.to_bf16(lanes::get(source, 32, lane) as u32).into());
            }
        }
        Narrow::BlockFloat => block_float::from_fp32(Rounding::new(rounding_mode)?, source, out),
        Narrow::Function(function) => {
            for lane in 0..bytes / 4 {
                let value = rounding::function(function, lanes::get(source, 32, lane) as u32);
                lanes::set(out, 16, lane, Rounding::NearestEven.to_bf16(value).into());
            }
        }
        Narrow::Pack { from } => {
            let from = if from != 0 {
                from
            } else if mode & 1 == 1 {
                16
            } else {
                8
            };
            of_width!(pack(from, source, bytes, signed, saturation, out));
        }
    }
    Some(())
}

#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn srs(
    (to, from): (u32, u32),
    source: &Bytes,
    bytes: usize,
    signed: bool,
    shift: u32,
    rounding: Rounding,
    saturation: Saturation,
    out: &mut Bytes,
) {
    for lane in 0..bytes * 8 / from as usize {
        let value = rounding.shift_right_short(lanes::number(source, from, lane, true), shift & (from - 1));
        lanes::set(out, to, lane, saturation.apply_short(value, to, signed));
    }
}

#[inline(always)]
fn pack(from: u32, source: &Bytes, bytes: usize, signed: bool, saturation: Saturation, out: &mut Bytes) {
    for lane in 0..bytes * 8 / from as usize {
        let value = lanes::number(source, from, lane, signed);
        lanes::set(out, from / 2, lane, saturation.apply_short(value, from / 2, signed));
    }
}

/// The largest whole number not above `x * 2^shift`, for lanes of bf16 from lane `first` on.
pub fn floor_bf16(source: &Bytes, first: usize, lanes_count: usize, shift: u32, out: &mut Bytes) {
    for lane in 0..lanes_count {
        let number = f32::from_bits((lanes::get(source, 16, first + lane) as u32) << 16);
        let scale = 2f64.powi((shift << 26).cast_signed() >> 26);
        let floor = (f64::from(number) * scale).floor();
        lanes::set(out, 32, lane, (floor as i32 as u32).into());
    }
}
