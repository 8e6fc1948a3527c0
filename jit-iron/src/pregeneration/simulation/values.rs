//! Input data, and what is right.
//!
//! Inputs are random and the same in every run. Results are compared as test-backend-ops compares them: by the normalised mean
//! squared error, 1e-7 at most, 5e-4 for products. A result of bf16 may be the other one of the two numbers that it lies between,
//! whole numbers have to be the same.

use super::{Difference, Verdict};
use aie_ops::{DataType, Node, Tensor, blocks};
use half::{bf16, f16};

const ALLOWED: f64 = 1e-7;
const ALLOWED_OF_PRODUCTS: f64 = 5e-4;
/// Half a unit of bf16's eight bits, squared, and a little more for the errors that are allowed anyway.
const ALLOWED_OF_BF16: f64 = 1.01 / 65536.0;

/// Random values for each source, within what the operation is defined for; whole numbers have up to five bits.
pub(super) fn inputs(operation: &str, node: &Node) -> Result<Vec<Option<Vec<u8>>>, String> {
    let mut random = fastrand::Rng::with_seed(42);
    let positive = matches!(operation, "LOG" | "SQRT");
    let fill = |(index, tensor): (usize, &Option<Tensor>)| {
        let Some(tensor) = tensor else { return Ok(None) };
        // A divisor near zero makes one quotient count for all.
        let apart = operation == "DIV" && index == 1;
        let mut bytes = vec![0; tensor.span_bytes()];
        let size = tensor.dtype.block_bytes();
        let value = |random: &mut fastrand::Rng| {
            let value = 4.0 * random.f64() - 2.0;
            if positive || apart { value.abs() + 0.25 } else { value }
        };
        if blocks::can_encode(tensor.dtype) {
            let elements = bytes.len() / size * tensor.dtype.block_elements();
            let values: Vec<f32> = (0..elements).map(|_| value(&mut random) as f32).collect();
            blocks::encode(tensor.dtype, &values, &mut bytes);
            return Ok(Some(bytes));
        }
        for at in bytes.chunks_exact_mut(size) {
            let value = value(&mut random);
            put(tensor.dtype, at, value, (random.i32(-31..=31), apart))?;
        }
        Ok(Some(bytes))
    };
    node.sources.iter().enumerate().map(fill).collect()
}

fn put(dtype: DataType, at: &mut [u8], value: f64, (whole, not_zero): (i32, bool)) -> Result<(), String> {
    let whole = if not_zero && whole == 0 { 1 } else { whole };
    match dtype {
        DataType::F32 => at.copy_from_slice(&(value as f32).to_le_bytes()),
        DataType::F16 => at.copy_from_slice(&f16::from_f64(value).to_le_bytes()),
        DataType::BF16 => at.copy_from_slice(&bf16::from_f64(value).to_le_bytes()),
        DataType::I8 => at.copy_from_slice(&(whole as i8).to_le_bytes()),
        DataType::I16 => at.copy_from_slice(&(whole as i16).to_le_bytes()),
        DataType::I32 => at.copy_from_slice(&whole.to_le_bytes()),
        other => return Err(format!("there are no random values of {}", other.name())),
    }
    Ok(())
}

fn values(dtype: DataType, bytes: &[u8]) -> Result<Vec<f64>, String> {
    let each = |take: fn(&[u8]) -> f64| bytes.chunks_exact(dtype.block_bytes()).map(take).collect();
    Ok(match dtype {
        DataType::F32 => each(|at| f32::from_le_bytes([at[0], at[1], at[2], at[3]]).into()),
        DataType::F16 => each(|at| f16::from_le_bytes([at[0], at[1]]).into()),
        DataType::BF16 => each(|at| bf16::from_le_bytes([at[0], at[1]]).into()),
        DataType::I8 => each(|at| i8::from_le_bytes([at[0]]).into()),
        DataType::I16 => each(|at| i16::from_le_bytes([at[0], at[1]]).into()),
        DataType::I32 => each(|at| i32::from_le_bytes([at[0], at[1], at[2], at[3]]).into()),
        other => return Err(format!("results of {} are not compared", other.name())),
    })
}

/// How far two results are apart; `None` where they cannot be compared.
pub(super) fn difference(dtype: DataType, one: &[u8], other: &[u8]) -> Option<Difference> {
    let size = dtype.block_bytes();
    let pairs = one.chunks_exact(size).zip(other.chunks_exact(size));
    let elements = pairs.filter(|(one, other)| one != other).count();
    let (first, second) = (values(dtype, one).ok()?, values(dtype, other).ok()?);
    let of = first.len();
    (of == second.len()).then(|| Difference { elements, of, nmse: nmse(&first, &second) })
}

/// The energy of the difference by that of `expected`, where it is finite. Infinities and what is no number have to be in the same
/// places.
fn nmse(found: &[f64], expected: &[f64]) -> f64 {
    let total: f64 = found.iter().zip(expected).map(|(found, expected)| squared_error(*found, *expected)).sum();
    let scale: f64 = expected.iter().filter(|value| value.is_finite()).map(|value| value * value).sum();
    if total == 0.0 { 0.0 } else { total / scale }
}

fn same(left: f64, right: f64) -> bool {
    left == right || (left.is_nan() && right.is_nan())
}

fn squared_error(left: f64, right: f64) -> f64 {
    if same(left, right) { 0.0 } else { (left - right).powi(2) }
}

/// What is to be said of a result.
pub(super) fn compared(operation: &str, node: &Node, found: &[u8], expected: &[u8]) -> Result<Verdict, String> {
    let dtype = node.output.dtype;
    if found.len() != expected.len() {
        return Err(format!("the simulator wrote {} bytes of {}", found.len(), expected.len()));
    }
    let (found, expected) = (values(dtype, found)?, values(dtype, expected)?);
    let allowed = match dtype {
        DataType::I8 | DataType::I16 | DataType::I32 => 0.0,
        _ if operation == "MUL_MAT" => ALLOWED_OF_PRODUCTS,
        DataType::BF16 | DataType::F16 => ALLOWED_OF_BF16,
        _ => ALLOWED,
    };
    let nmse = nmse(&found, &expected);
    if nmse <= allowed {
        return Ok(Verdict::Right { nmse });
    }
    let beyond = |(found, expected): (&f64, &f64)| match squared_error(*found, *expected) {
        _ if same(*found, *expected) => -1.0,
        error if error.is_nan() => f64::INFINITY,
        error => error,
    };
    let pairs = found.iter().zip(&expected).enumerate();
    let worst = pairs.max_by(|one, other| beyond(one.1).total_cmp(&beyond(other.1)));
    let (element, (found, expected)) =
        worst.map_or((0, (0.0, 0.0)), |(index, (found, expected))| (index, (*found, *expected)));
    Ok(Verdict::Wrong { nmse, allowed, element, found, expected })
}
