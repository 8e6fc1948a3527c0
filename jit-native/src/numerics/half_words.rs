//! Shifts of elements of 16 bits.

use crate::codegen::{CoreBuilder, Reg};
use aie_isa::InstructionSet;

/// The modes for them.
#[derive(Clone, Copy, Debug)]
pub struct HalfWords(InstructionSet);

impl HalfWords {
    /// For what is [within](HalfWords::within).
    pub fn new(b: &CoreBuilder) -> Self {
        Self(b.isa().set())
    }

    /// Within this, nothing else may round or be shifted.
    pub fn within(b: &mut CoreBuilder, body: impl FnOnce(&mut CoreBuilder, Self)) {
        let rounding = |b: &mut CoreBuilder, mode: i64| {
            let control = b.special("crRnd");
            b.constant_into(control, mode);
        };
        rounding(b, 0);
        Self::around(b, body);
        // As [`Lanes`](super::Lanes) have it.
        rounding(b, 12);
    }

    /// The same where bits that are shifted out are rounded, as numbers are: within this, nothing else may be shifted.
    pub fn around(b: &mut CoreBuilder, body: impl FnOnce(&mut CoreBuilder, Self)) {
        let half_words = Self::new(b);
        half_words.widths(b, 0);
        body(b, half_words);
        // As [`Lanes`](super::Lanes) have them.
        half_words.widths(b, 1);
    }

    fn widths(self, b: &mut CoreBuilder, width: i64) {
        let names: &[&str] = if self.0 == InstructionSet::Aie2p { &["crUPSMode", "crSRSMode"] } else { &[] };
        for name in names {
            let control = b.special(name);
            b.constant_into(control, width);
        }
    }

    /// Shifted to the left, in 32 bits each.
    pub fn widened(self, b: &mut CoreBuilder, wide: Reg, x: Reg, by: Reg) {
        self.widen(b, ["vups.s32.s16", "VUPS_2x_mv_ups_x2c_upsSign1"], [wide, x, by]);
    }

    /// The same of numbers without a sign.
    pub fn widened_unsigned(self, b: &mut CoreBuilder, wide: Reg, x: Reg, by: Reg) {
        self.widen(b, ["vups.s32.d16", "VUPS_2x_mv_ups_x2c_upsSign0"], [wide, x, by]);
    }

    fn widen(self, b: &mut CoreBuilder, [mnemonic, key]: [&str; 2], [wide, x, by]: [Reg; 3]) {
        match self.0 {
            InstructionSet::Aie2 => b.emit(mnemonic, [wide, x, by]),
            InstructionSet::Aie2p => {
                let operands = [("dst", wide), ("src", x), ("su", by)].map(|(name, reg)| (name, reg.into()));
                b.op(key, &operands);
            }
        }
    }

    /// Shifted to the right, the lower 16 bits. Those above the highest may be anything.
    pub fn narrowed(self, b: &mut CoreBuilder, target: Reg, wide: Reg, by: Reg) {
        match self.0 {
            InstructionSet::Aie2 => b.emit("vsrs.s16.s32", [target, wide, by]),
            InstructionSet::Aie2p => {
                let operands = [("dst", target), ("src", wide), ("su", by)].map(|(name, reg)| (name, reg.into()));
                b.op("VSRS_2x_mv_x_srs_cm_srsSign1", &operands);
            }
        }
    }
}
