//! Rounding modes (crRnd) and saturation (crSat), which UPS, SRS and conversions share.

use super::operation::Function;

/// How a number is cut. The values are those of crRnd; all ten agree with values seen on silicon for fp32 to bf16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    Floor,
    Ceil,
    TowardZero,
    AwayFromZero,
    NearestDown,
    NearestUp,
    NearestToZero,
    NearestFromZero,
    NearestEven,
    NearestOdd,
}

impl Rounding {
    /// The mode of a value of crRnd; None for values without a meaning.
    pub fn new(mode: u32) -> Option<Self> {
        Some(match mode & 0xf {
            0 => Self::Floor,
            1 => Self::Ceil,
            2 => Self::TowardZero,
            3 => Self::AwayFromZero,
            8 => Self::NearestDown,
            9 => Self::NearestUp,
            10 => Self::NearestToZero,
            11 => Self::NearestFromZero,
            12 => Self::NearestEven,
            13 => Self::NearestOdd,
            _ => return None,
        })
    }

    /// Whether floor(x) has to be increased by one, where x = floor(x) + rest and half is one half in the rest's units.
    #[inline(always)]
    fn up<T: Copy + Ord + Default>(self, negative: bool, odd: bool, rest: T, half: T) -> bool {
        let (above, tie) = (rest > half, rest == half);
        rest != T::default()
            && match self {
                Self::Floor => false,
                Self::Ceil => true,
                Self::TowardZero => negative,
                Self::AwayFromZero => !negative,
                Self::NearestDown => above,
                Self::NearestUp => above || tie,
                Self::NearestToZero => above || tie && negative,
                Self::NearestFromZero => above || tie && !negative,
                Self::NearestEven => above || tie && odd,
                Self::NearestOdd => above || tie && !odd,
            }
    }

    /// `value / 2^shift`, rounded.
    pub fn shift_right(self, value: i128, shift: u32) -> i128 {
        if shift == 0 {
            return value;
        }
        let floor = value >> shift;
        let rest = (value - (floor << shift)).cast_unsigned();
        floor + i128::from(self.up(value < 0, floor & 1 == 1, rest, 1 << (shift - 1)))
    }

    /// The same of a number of 64 bits, which takes the host less.
    #[inline(always)]
    pub fn shift_right_short(self, value: i64, shift: u32) -> i64 {
        if shift == 0 {
            return value;
        }
        let (floor, rest) = (value >> shift, value.cast_unsigned() & ((1 << shift) - 1));
        floor + i64::from(self.up(value < 0, floor & 1 == 1, rest, 1 << (shift - 1)))
    }

    /// fp32 to bf16. Infinity stays; of NaN the upper half stays, with its lowest bit set where it would read as infinity.
    pub fn to_bf16(self, bits: u32) -> u16 {
        let (negative, upper) = (bits >> 31 == 1, bits >> 16);
        if bits & 0x7fff_ffff > 0x7f80_0000 {
            return upper as u16 | u16::from(upper & 0x7f == 0);
        }
        // As a signed number, so that floor is towards minus infinity: the magnitude's ceiling for negative ones.
        let magnitude = i64::from(bits & 0x7fff_ffff);
        let value = if negative { -magnitude } else { magnitude };
        let rounded = self.shift_right_short(value, 16);
        (u32::from(negative) << 31 >> 16 | rounded.unsigned_abs() as u32) as u16
    }
}

/// A function of fp32. Numbers with exponent 0 count as zero, as everywhere in the array, and such results become zero.
pub fn function(function: Function, bits: u32) -> u32 {
    let flushed = |bits: u32| if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits };
    let x = f64::from(f32::from_bits(flushed(bits)));
    let value = match function {
        Function::Reciprocal => 1.0 / x,
        Function::SquareRoot => x.sqrt(),
        Function::InverseSquareRoot => 1.0 / x.sqrt(),
        Function::Exp2 => x.exp2(),
        Function::Tanh => x.tanh(),
    };
    flushed((value as f32).to_bits())
}

/// What becomes of a number that is too large for its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Saturation(pub u32);

impl Saturation {
    /// The low bits of a number, or the nearest number that the target has.
    pub fn apply(self, value: i128, bits: u32, signed: bool) -> u64 {
        let mask = u64::MAX >> (64 - bits);
        let (low, high) =
            if signed { (-(1i128 << (bits - 1)), (1i128 << (bits - 1)) - 1) } else { (0, (1i128 << bits) - 1) };
        let value = match self.0 & 3 {
            0 => value,
            3 if signed => value.clamp(low + 1, high),
            _ => value.clamp(low, high),
        };
        value as u64 & mask
    }

    /// The same of a number of 64 bits, which takes the host less.
    #[inline(always)]
    pub fn apply_short(self, value: i64, bits: u32, signed: bool) -> u64 {
        let mask = u64::MAX >> (64 - bits);
        // With 63 bits or more above zero, no such number is too large.
        let high = i64::MAX >> (if signed { 64 - bits } else { 63_u32.saturating_sub(bits) });
        let low = if signed { -high - 1 } else { 0 };
        let value = match self.0 & 3 {
            0 => value,
            3 if signed => value.clamp(low + 1, high),
            _ => value.clamp(low, high),
        };
        value.cast_unsigned() & mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    /// 2.5, 3.5, -2.5 and -3.5 in halves.
    #[rstest]
    #[case(0, [2, 3, -3, -4])]
    #[case(1, [3, 4, -2, -3])]
    #[case(2, [2, 3, -2, -3])]
    #[case(3, [3, 4, -3, -4])]
    #[case(8, [2, 3, -3, -4])]
    #[case(9, [3, 4, -2, -3])]
    #[case(10, [2, 3, -2, -3])]
    #[case(11, [3, 4, -3, -4])]
    #[case(12, [2, 4, -2, -4])]
    #[case(13, [3, 3, -3, -3])]
    fn ties_go_where_the_mode_says(#[case] mode: u32, #[case] expected: [i128; 4]) {
        let rounding = Rounding::new(mode).unwrap();
        assert_eq!([5, 7, -5, -7].map(|halves| rounding.shift_right(halves, 1)), expected);
    }

    #[test]
    fn short_numbers_are_as_long_ones() {
        let modes = (0..16).filter_map(Rounding::new);
        let mut random = fastrand::Rng::with_seed(1);
        for rounding in modes {
            for _ in 0..3000 {
                let (value, shift) = (random.i64(..) >> random.u32(..64), random.u32(..64));
                let long = rounding.shift_right(value.into(), shift);
                assert_eq!(i128::from(rounding.shift_right_short(value, shift)), long, "{rounding:?} {value} {shift}");
            }
        }
        for value in
            [0, 1, -1, 127, 128, -128, -129, 255, 256, i64::MAX, i64::MIN].into_iter().chain([1 << 31, 1 << 32])
        {
            for (mode, bits, signed) in (0..4).flat_map(|mode| {
                [4, 8, 16, 32, 64].into_iter().flat_map(move |bits| [true, false].map(|signed| (mode, bits, signed)))
            }) {
                let saturation = Saturation(mode);
                let long = saturation.apply(value.into(), bits, signed);
                assert_eq!(saturation.apply_short(value, bits, signed), long, "{value} {bits} {signed} {mode}");
            }
        }
    }

    #[test]
    fn numbers_are_saturated() {
        assert_eq!(Saturation(0).apply(300, 8, true), 44);
        assert_eq!(Saturation(1).apply(300, 8, true), 127);
        assert_eq!(Saturation(1).apply(-300, 8, true), 0x80);
        assert_eq!(Saturation(3).apply(-300, 8, true), 0x81);
        assert_eq!(Saturation(1).apply(-300, 8, false), 0);
        assert_eq!(Saturation(1).apply(300, 8, false), 255);
    }
}
