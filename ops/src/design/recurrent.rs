//! Operations that carry a state from token to token: scans and delta rules.

use super::{DEFAULT_STACK_BYTES, Design, Flow, TileBuffer};
use crate::operation::Unsupported;
use aie_hal::Arch;

/// A recurrence over the tokens of sequences. Rows of its states do not depend on each other.
#[derive(Debug, Clone, Copy)]
pub struct Recurrence {
    /// States: heads times sequences.
    pub units: usize,
    /// Rows of a state.
    pub rows: usize,
    /// Bytes of a row of state, in the type the cores compute in.
    pub row_bytes: usize,
    /// Bytes a core needs beside its state for all tokens.
    pub resident_bytes: usize,
    /// Bytes of a token that every core of a unit reads.
    pub shared_bytes: usize,
    /// Bytes of a token for one row of state.
    pub input_bytes: usize,
    /// Bytes a token gives for one row of state.
    pub output_bytes: usize,
}

/// Plans as many cores as there are blocks of rows. A block is a part of one state that stays in a core's memory while all tokens
/// of its sequence pass, so that state is read and written once; it is a whole state when half of the core holds it and enough
/// states keep all cores busy. What a unit's cores share is sent to all of them by the mem tile of their column. The state comes
/// in on the stream of the inputs and leaves on the stream of the outputs.
///
/// # Errors
/// [`Unsupported::Resources`].
pub fn recurrent(op: &'static str, recurrence: &Recurrence, arch: &Arch) -> Result<Design, Unsupported> {
    let cores = arch.array.columns * arch.array.core_rows;
    // Blocks are halved until every core has one, but not below what a vector of outputs fills.
    const FEWEST_ROWS: usize = 16;
    let mut rows = recurrence.rows.max(1);
    let design = loop {
        let design = plan(recurrence, rows, arch);
        let too_few = recurrence.units * recurrence.rows.div_ceil(rows) < cores && rows > FEWEST_ROWS;
        if rows == 1 || (design.fits(arch) && !too_few) {
            break design;
        }
        rows = rows.div_ceil(2);
    };
    design.check(op, arch)?;
    Ok(design)
}

fn plan(recurrence: &Recurrence, rows: usize, arch: &Arch) -> Design {
    let blocks = recurrence.units.saturating_mul(recurrence.rows.div_ceil(rows)).max(1);
    let cores = blocks.min(arch.array.core_rows);
    let mut core_buffers = vec![TileBuffer::new("state", recurrence.row_bytes.saturating_mul(rows), 1)];
    if recurrence.resident_bytes > 0 {
        core_buffers.push(TileBuffer::new("decay", recurrence.resident_bytes, 1));
    }
    let inputs = recurrence.input_bytes.saturating_mul(rows);
    let outputs = recurrence.output_bytes.saturating_mul(rows);
    core_buffers.push(TileBuffer::new("sources of a token, shared", recurrence.shared_bytes, 2));
    core_buffers.push(TileBuffer::new("sources of a token, by row", inputs, 2));
    core_buffers.push(TileBuffer::new("output of a token", outputs, 2));
    let mem_tile_buffers = vec![
        TileBuffer::new("sources of a token, shared", recurrence.shared_bytes, 2),
        TileBuffer::new("sources of a token, by row", inputs.saturating_mul(cores), 2),
        TileBuffer::new("output of a token", outputs.saturating_mul(cores), 2),
    ];
    let columns = blocks.div_ceil(cores).min(arch.array.columns);
    Design {
        flow: Flow::Recurrence,
        columns,
        cores_per_column: cores,
        core_buffers,
        mem_tile_buffers,
        core_inputs: 2,
        core_outputs: 1,
        stack_bytes: DEFAULT_STACK_BYTES,
        passes: blocks.div_ceil(columns * cores),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::arch;
    use super::*;
    use rstest::rstest;

    fn scan(units: usize, rows: usize, length: usize) -> Recurrence {
        Recurrence {
            units,
            rows,
            row_bytes: length * 4,
            resident_bytes: 4,
            shared_bytes: 2 * length * 4,
            input_bytes: 4,
            output_bytes: 4,
        }
    }

    /// Expected are columns, cores in each, bytes of state in a core and passes.
    #[rstest]
    #[case::mamba2("aie2p", scan(80, 64, 128), [8, 4, 32768, 3])]
    #[case::too_large_for_a_core("aie2p", scan(32, 128, 128), [8, 4, 32768, 2])]
    #[case::few_heads("aie2p", scan(8, 64, 256), [8, 4, 16384, 1])]
    #[case::mamba1("aie2p", scan(1024, 1, 16), [8, 4, 64, 32])]
    #[case::single("aie2", scan(1, 16, 16), [1, 1, 1024, 1])]
    fn state_stays_in_the_cores(
        #[case] generation: &str,
        #[case] recurrence: Recurrence,
        #[case] expected: [usize; 4],
    ) {
        let design = recurrent("SSM_SCAN", &recurrence, &arch(generation)).unwrap();
        let found = [design.columns, design.cores_per_column, design.core_buffers[0].bytes, design.passes];
        assert_eq!(found, expected, "{design:#?}");
    }

    #[test]
    fn a_row_that_exceeds_a_core_is_refused() {
        let message = recurrent("SSM_SCAN", &scan(1, 4, 20_000), &arch("aie2p")).unwrap_err().to_string();
        assert!(message.contains("state 1 x 80000"), "{message}");
    }
}
