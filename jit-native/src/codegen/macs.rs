//! How many multiply-accumulates an instruction does, by its configuration word.

use super::operation::{Op, Val};
use super::register::Variable;

/// Multiply-accumulates of operations, and the most that one instruction on operands of these types does. Configuration words
/// that are not constants count as nothing.
pub(super) fn of(ops: &[Op], variables: &[Variable]) -> (u32, u32) {
    let each = ops.iter().filter_map(|op| {
        let row = &op.rows[0];
        let products = ["mul", "mac", "msc"].iter().any(|part| row.instruction.mnemonic.contains(part));
        if !products || row.instruction.slot != aie_isa::Slot::Vec {
            return None;
        }
        let Val::Reg(configuration) = row.values[row.instruction.operand("c")?] else {
            return None;
        };
        let variable = &variables[configuration.variable as usize];
        shape(variable.constant.filter(|_| variable.writes == 1)?)
    });
    each.fold((0, 0), |(macs, peak), (done, most)| (macs + done, peak.max(most)))
}

/// For amode (bits 2:1), bmode (4:3) and variant (7:5): what the instruction does, and the best variant of the types.
fn shape(configuration: i64) -> Option<(u32, u32)> {
    let field = |low: u32, bits: u32| (configuration >> low) as u32 & ((1 << bits) - 1);
    Some(match (field(1, 2), field(3, 2), field(5, 3)) {
        // 8 x 4 and 8 x 8 bits to 32.
        (0, 0, 0) => (512, 512),
        (0, 1, 0 | 3 | 4) => (256, 256),
        (0, 1, 1) => (64, 256),
        (0, 1, 2) => (128, 256),
        // 16 x 8 and 16 x 16 bits to 32.
        (0, 2, 0 | 1) => (128, 128),
        (0, 3, 0) => (64, 64),
        (0, 3, 1) => (32, 64),
        // To 64 bits.
        (1, 2, 0 | 1) => (128, 128),
        (1, 3, 0 | 1 | 3) => (64, 64),
        (1, 3, 2) => (32, 64),
        (1, 0, 0) => (32, 32),
        // bf16.
        (2, 3, 0) => (128, 128),
        (2, 3, 1) => (32, 128),
        _ => return None,
    })
}
