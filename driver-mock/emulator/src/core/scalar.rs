//! Arithmetic of the alu slot, modulo 2^32.

use super::operation::{Binary, Unary};
use super::rounding;
use aie_isa::InstructionSet;

pub fn binary(operation: Binary, a: u32, b: u32, carry: bool) -> u32 {
    let shift = b.cast_signed();
    match operation {
        Binary::Add => a.wrapping_add(b),
        Binary::Sub => a.wrapping_sub(b),
        Binary::AddCarry => a.wrapping_add(b).wrapping_add(carry.into()),
        Binary::SubBorrow => a.wrapping_sub(b).wrapping_sub(carry.into()),
        Binary::Mul => a.wrapping_mul(b),
        Binary::And => a & b,
        Binary::Or => a | b,
        Binary::Xor => a ^ b,
        Binary::Eq => (a == b).into(),
        Binary::Ne => (a != b).into(),
        Binary::Lt => (a.cast_signed() < b.cast_signed()).into(),
        Binary::Ge => (a.cast_signed() >= b.cast_signed()).into(),
        Binary::LtUnsigned => (a < b).into(),
        Binary::GeUnsigned => (a >= b).into(),
        // A negative amount shifts to the right. Amounts are taken modulo 32, as seen on silicon for AIE2.
        Binary::LogicalShift if shift < 0 => a >> (shift.wrapping_neg() & 31),
        Binary::ArithmeticShift if shift < 0 => (a.cast_signed() >> (shift.wrapping_neg() & 31)).cast_unsigned(),
        Binary::LogicalShift | Binary::ArithmeticShift => a << (shift & 31),
    }
}

/// Whether an addition or subtraction carries out of 32 bits. A subtraction's is 1 when it borrows, as seen on silicon for AIE2.
pub fn carry(operation: Binary, a: u32, b: u32, carry: bool) -> bool {
    let (a, b, carry) = (u64::from(a), u64::from(b), u64::from(carry));
    match operation {
        Binary::Add => a + b > u64::from(u32::MAX),
        Binary::AddCarry => a + b + carry > u64::from(u32::MAX),
        Binary::Sub => a < b,
        Binary::SubBorrow => a < b + carry,
        _ => false,
    }
}

pub fn unary(operation: Unary, set: InstructionSet, a: u32) -> u32 {
    match operation {
        Unary::Abs => a.cast_signed().wrapping_abs().cast_unsigned(),
        // AIE2 counts the sign bit, as seen on silicon; AIE2P does not, as AMD's executor has it.
        Unary::LeadingSignBits => {
            let with_sign = (a ^ (a.cast_signed() >> 31).cast_unsigned()).leading_zeros();
            match set {
                InstructionSet::Aie2 => with_sign,
                InstructionSet::Aie2p => with_sign - 1,
            }
        }
        Unary::LeadingZeros => a.leading_zeros(),
        Unary::Population => a.count_ones(),
        Unary::IsZero => (a == 0).into(),
        Unary::IsNotZero => (a != 0).into(),
        Unary::Function(function) => rounding::function(function, a),
        Unary::Extend { bits, signed: true } => ((a << (32 - bits)).cast_signed() >> (32 - bits)).cast_unsigned(),
        Unary::Extend { bits, signed: false } => a << (32 - bits) >> (32 - bits),
    }
}

/// The remainder and r31 after a step. The remainder is as seen on silicon for AIE2; r31 follows from 32 steps being a division.
pub fn division_step(r31: u32, a: u32, b: u32) -> (u32, u32) {
    let dividend = a << 1 | r31 >> 31;
    let fits = dividend >= b;
    (if fits { dividend - b } else { dividend }, r31 << 1 | u32::from(fits))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::operation::Function;

    #[test]
    fn functions_are_of_fp32() {
        let of =
            |function, x: f32| f32::from_bits(unary(Unary::Function(function), InstructionSet::Aie2p, x.to_bits()));
        assert_eq!(of(Function::Reciprocal, 4.0), 0.25);
        assert_eq!(of(Function::Reciprocal, 3.0).to_bits(), 0x3eaa_aaab);
        assert_eq!(of(Function::Reciprocal, -0.0), f32::NEG_INFINITY);
        assert_eq!(of(Function::SquareRoot, 2.25), 1.5);
        assert_eq!(of(Function::InverseSquareRoot, 16.0), 0.25);
        assert!(of(Function::SquareRoot, -1.0).is_nan());
    }

    #[test]
    fn thirty_two_steps_divide() {
        for (dividend, divisor) in [(100, 7), (u32::MAX, 3), (5, 9), (0x8000_0000, 0x7fff_ffff)] {
            let step = |(remainder, r31), _| division_step(r31, remainder, divisor);
            assert_eq!((0..32).fold((0, dividend), step), (dividend % divisor, dividend / divisor));
        }
    }
}
