//! Elements as f32: reading and writing runs of any float type, i32 and quantised blocks.
//!
//! Runs of f32 are used where they lie. Others are converted by functions of their own, which are compiled once, for all vector
//! units, and not as part of each of the hundred kernels.

use super::kernel::KernelInput;
use super::rows::vectorised;
use crate::blocks;
use crate::tensor::{DataType, Tensor};
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// Whether elements of the type stand alone: those [`load`] and [`store`] know besides blocks.
pub fn is_plain(dtype: DataType) -> bool {
    matches!(dtype, DataType::F32 | DataType::F16 | DataType::BF16 | DataType::I32)
}

/// A bf16 as f32.
#[inline(always)]
pub fn widen(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// An f32 as bf16, to nearest, ties to even; NaN stays NaN. Free of branches, so that loops vectorise.
#[inline(always)]
pub fn narrow(value: f32) -> u16 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1));
    let chosen = if value.is_nan() { bits | 0x0040_0000 } else { rounded };
    (chosen >> 16) as u16
}

/// Reads `target.len()` elements without gaps. Returns false when the type is neither plain nor quantised, or the blocks are not
/// whole.
#[inline(never)]
pub fn load(dtype: DataType, source: &[u8], target: &mut [f32]) -> bool {
    match dtype {
        DataType::F32 => convert(source, target, f32::from_le_bytes),
        DataType::BF16 => convert(
            source,
            target,
            #[inline(always)]
            |bytes| widen(u16::from_le_bytes(bytes)),
        ),
        DataType::F16 => load_f16(source, target),
        DataType::I32 => convert(
            source,
            target,
            #[inline(always)]
            |bytes| i32::from_le_bytes(bytes) as f32,
        ),
        _ => {
            let bytes = dtype.row_bytes(target.len());
            return source.len() >= bytes && blocks::decode(dtype, &source[..bytes], target);
        }
    }
    true
}

fn convert<const N: usize>(source: &[u8], target: &mut [f32], value: impl Fn([u8; N]) -> f32) {
    vectorised(
        #[inline(always)]
        || {
            for (t, s) in target.iter_mut().zip(source.as_chunks::<N>().0) {
                *t = value(*s);
            }
        },
    );
}

/// f16 elements, at any alignment.
pub fn load_f16(source: &[u8], target: &mut [f32]) {
    let source = &source[..target.len() * 2];
    match bytemuck::try_cast_slice::<u8, u16>(source) {
        Ok(bits) => bits.reinterpret_cast::<half::f16>().convert_to_f32_slice(target),
        Err(_) => {
            for (t, s) in target.iter_mut().zip(source.as_chunks::<2>().0) {
                *t = half::f16::from_le_bytes(*s).to_f32();
            }
        }
    }
}

/// Writes elements without gaps; i32 truncates as a C cast does. Returns false when the type is neither plain nor one that
/// [`blocks::can_encode`] knows, or the blocks are not whole.
#[inline(never)]
pub fn store(dtype: DataType, source: &[f32], target: &mut [u8]) -> bool {
    match dtype {
        DataType::F32 => convert_back(source, target, f32::to_le_bytes),
        DataType::BF16 => convert_back(
            source,
            target,
            #[inline(always)]
            |value| narrow(value).to_le_bytes(),
        ),
        DataType::F16 => store_f16(source, target),
        DataType::I32 => convert_back(
            source,
            target,
            #[inline(always)]
            |value| (value as i32).to_le_bytes(),
        ),
        _ => {
            let bytes = dtype.row_bytes(source.len());
            return target.len() >= bytes && blocks::encode(dtype, source, &mut target[..bytes]);
        }
    }
    true
}

fn convert_back<const N: usize>(source: &[f32], target: &mut [u8], bytes: impl Fn(f32) -> [u8; N]) {
    vectorised(
        #[inline(always)]
        || {
            for (t, s) in target.as_chunks_mut::<N>().0.iter_mut().zip(source) {
                *t = bytes(*s);
            }
        },
    );
}

fn store_f16(source: &[f32], target: &mut [u8]) {
    let target = &mut target[..source.len() * 2];
    match bytemuck::try_cast_slice_mut::<u8, u16>(target) {
        Ok(bits) => bits.reinterpret_cast_mut::<half::f16>().convert_from_f32_slice(source),
        Err(_) => {
            for (t, s) in target.as_chunks_mut::<2>().0.iter_mut().zip(source) {
                *t = half::f16::from_f32(*s).to_le_bytes();
            }
        }
    }
}

/// One element of a plain type.
#[inline(always)]
pub fn load_one(dtype: DataType, source: &[u8]) -> f32 {
    match dtype {
        DataType::F32 => f32::from_le_bytes([source[0], source[1], source[2], source[3]]),
        DataType::BF16 => widen(u16::from_le_bytes([source[0], source[1]])),
        DataType::F16 => half::f16::from_le_bytes([source[0], source[1]]).to_f32(),
        _ => i32::from_le_bytes([source[0], source[1], source[2], source[3]]) as f32,
    }
}

/// A row of `tensor` that starts at `source`, as [`load`]: rows of plain types may have gaps.
pub fn load_row(tensor: &Tensor, source: &[u8], target: &mut [f32]) -> bool {
    let (dtype, stride) = (tensor.dtype, tensor.nb[0]);
    if dtype.is_quantised() || target.len() == 1 || stride == dtype.block_bytes() {
        return load(dtype, source, target);
    }
    for (i, value) in target.iter_mut().enumerate() {
        *value = load_one(dtype, &source[i * stride..]);
    }
    true
}

/// `length` elements of plain type from element `start` of the row at `offset`: borrowed when the row is aligned f32 without
/// gaps, converted into `scratch` otherwise.
#[inline(always)]
pub fn read<'a>(
    tensor: &Tensor,
    bytes: &'a [u8],
    offset: usize,
    start: usize,
    length: usize,
    scratch: &'a mut Vec<f32>,
) -> &'a [f32] {
    if length == 0 {
        return &[];
    }
    if tensor.dtype == DataType::F32
        && (tensor.nb[0] == 4 || tensor.ne[0] == 1)
        && let Ok(values) = bytemuck::try_cast_slice(&bytes[offset + start * 4..][..length * 4])
    {
        return values;
    }
    read_converted(tensor, bytes, [offset, start], length, scratch);
    scratch
}

/// What [`read`] does with elements that are not borrowed.
#[inline(never)]
fn read_converted(tensor: &Tensor, bytes: &[u8], [offset, start]: [usize; 2], length: usize, scratch: &mut Vec<f32>) {
    let size = tensor.dtype.block_bytes();
    if tensor.nb[0] != size && tensor.ne[0] > 1 {
        let first = offset + start * tensor.nb[0];
        scratch.clear();
        scratch.extend((0..length).map(|i| load_one(tensor.dtype, &bytes[first + i * tensor.nb[0]..])));
    } else {
        scratch.resize(length, 0.0);
        load(tensor.dtype, &bytes[offset + start * size..][..length * size], scratch);
    }
}

/// As [`read`] for a whole row of an argument, with the offset of the row.
#[inline(always)]
pub fn read_row<'a>(
    argument: &KernelInput,
    inputs: &[&'a [u8]],
    offset: usize,
    scratch: &'a mut Vec<f32>,
) -> &'a [f32] {
    read(&argument.tensor, inputs[argument.position], offset, 0, argument.tensor.ne[0], scratch)
}

/// Gives `fill` the run of plain elements that lies in `target` without gaps: in place when it is aligned f32, by way of
/// `scratch` otherwise. What `fill` finds in the slice is arbitrary.
#[inline(always)]
pub fn write(dtype: DataType, target: &mut [u8], scratch: &mut Vec<f32>, fill: impl FnOnce(&mut [f32])) {
    let length = target.len() / dtype.block_bytes();
    let in_place = dtype == DataType::F32 && bytemuck::try_cast_slice_mut::<_, f32>(target).is_ok();
    // One call of `fill` for both ways: it is a kernel's loop, which is compiled where it is called.
    fill(if in_place {
        bytemuck::cast_slice_mut(target)
    } else {
        scratch.resize(length, 0.0);
        scratch.as_mut_slice()
    });
    if !in_place {
        store(dtype, scratch, target);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bf16_rounds_to_nearest_even() {
        let mut bits = 0_u64;
        while bits <= u64::from(u32::MAX) {
            let value = f32::from_bits(bits as u32);
            let expected = half::bf16::from_f32(value);
            if value.is_nan() {
                assert!(half::bf16::from_bits(narrow(value)).is_nan());
            } else {
                assert_eq!(narrow(value), expected.to_bits(), "{value:e}");
            }
            bits += 10_007;
        }
    }

    #[test]
    fn unaligned_runs_are_read_and_written() {
        let values = [1.5_f32, -2.25, 1e-3, 77.0, 0.0];
        for dtype in [DataType::F32, DataType::F16, DataType::BF16, DataType::I32] {
            let size = dtype.block_bytes();
            for shift in 0..3 {
                let mut bytes = vec![0; shift + values.len() * size];
                assert!(store(dtype, &values, &mut bytes[shift..]));
                let mut back = [9.0; 5];
                assert!(load(dtype, &bytes[shift..], &mut back));
                for (i, (a, b)) in values.iter().zip(back).enumerate() {
                    let exact = if dtype == DataType::I32 { a.trunc() } else { *a };
                    assert!((exact - b).abs() <= exact.abs() / 128.0, "{dtype} {a} {b}");
                    assert_eq!(load_one(dtype, &bytes[shift + i * size..]), b);
                }
            }
        }
    }

    #[test]
    fn unknown_types_and_broken_blocks_are_reported() {
        assert!(!load(DataType::I64, &[0; 256], &mut [0.0; 32]));
        assert!(!load(DataType::Q4_0, &[0; 17], &mut [0.0; 32]));
        assert!(!store(DataType::Q4_0, &[0.0; 32], &mut [0; 17]));
        assert!(!store(DataType::IQ2_XXS, &[0.0; 256], &mut [0; 66]));
    }
}
