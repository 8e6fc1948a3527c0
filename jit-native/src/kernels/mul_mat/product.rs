//! The inner loops: 16 rows of weights times 16 or 4 columns.
//!
//! ```text
//!            s2: 8 k x 4 columns (64 bytes)
//!             X0    X1    X2    X3
//!   s1  W0   acc   acc   acc   acc      W: 4 rows x 8 k (64 bytes)
//!       W1   acc   acc   acc   acc      acc: 4 rows x 4 columns of f32 (a bm)
//!       W2   acc   acc   acc   acc
//!       W3   acc   acc   acc   acc      a step: 8 vectors loaded, 16 vmac.f
//! ```
//!
//! A step of 8 `k` loads 16 times 256 bits, which two load units do in 8 cycles, and issues 16 `vmac.f` of 128
//! multiply-accumulates, one a cycle: so 16 cycles a step are the bound, all of them with a multiplication. The sum that a
//! `vmac.f` adds to is the one of 16 cycles before, where 4 would be enough. 16 of the 18 accumulators and 8 of the 12
//! vectors are in use; the next step's vectors replace them in the order in which they become free. With one block of columns
//! 10 loads serve 4 multiplications, so a step takes 5 cycles: 102 multiply-accumulates a cycle, which is far more than
//! weights that stream from memory need.

use super::parameters::Parameter;
use super::program::Kernel;
use crate::core::{Address, Class, CoreBuilder, Reg, Region};

/// Blocks of four columns in a unit, in both forms of the loop.
pub(super) const WIDE: usize = 4;
pub(super) const NARROW: usize = 1;
/// Rows of weights in a group: four blocks of four.
pub(super) const GROUP_ROWS: usize = 16;
/// A block of 4 x 8 bf16.
pub(super) const BLOCK_BYTES: u32 = 64;
/// The sums of a group and one block of columns: 16 rows x 4 columns of f32.
pub(super) const GROUP_SUMS_BYTES: u32 = 256;
const ROW_BLOCKS: usize = GROUP_ROWS / 4;

/// Adds the products of a group of rows, at the address `source`, and the columns at `columns` to the sums at `group_sums`; sets
/// them if `first` is not zero.
pub(super) fn product(b: &mut CoreBuilder, k: Kernel, [source, columns, group_sums, first]: [Reg; 4], blocks: usize) {
    let stride = k.modifier(b, Parameter::SumsStride);
    let columns = pair_of_pointers(b, k, k.columns, columns);
    let target = k.pointer(b, k.sums, group_sums);
    let units = k.count(b, Parameter::Units, 1);
    b.repeat(units, |b| {
        let accumulators: Vec<Vec<Reg>> = (0..blocks).map(|_| registers(b, Class::Acc512)).collect();
        let from = b.pointer(k.sums);
        b.mov(from, target);
        // What arrived and what was decoded are read by the same loop; only the latter is written by the core.
        let weights = pair_of_pointers(b, k, k.decoded, source);
        b.when_else(
            first,
            |b| accumulators.iter().flatten().for_each(|sum| b.emit("vclr", [*sum])),
            |b| {
                for block in &accumulators {
                    for (index, sum) in block.iter().enumerate() {
                        b.load(*sum, from, Address::At(64 * index as i64));
                    }
                    b.advance(from, stride);
                }
            },
        );
        let steps = k.count(b, Parameter::Steps, 4).multiple_of(4);
        b.name_loop(if blocks == WIDE { "product of 16 columns" } else { "product of 4 columns" });
        b.repeat(steps, |b| {
            let rows = registers(b, Class::X);
            let lanes: Vec<Reg> = (0..blocks).map(|_| b.reg(Class::X)).collect();
            for (pair, pointer) in rows.chunks(2).zip(weights) {
                load(b, pair, pointer, ROW_BLOCKS);
            }
            for (pair, pointer) in lanes.chunks(2).zip(columns) {
                load(b, pair, pointer, blocks);
            }
            for (index, row) in rows.iter().enumerate() {
                for (lane, block) in lanes.iter().zip(&accumulators) {
                    b.mac_f(block[index], block[index], *row, *lane, k.matrix);
                }
            }
        });
        for block in &accumulators {
            for (index, sum) in block.iter().enumerate() {
                b.store(*sum, target, Address::At(64 * index as i64));
            }
            b.advance(target, stride);
        }
    });
}

/// A register for each block of rows.
fn registers(b: &mut CoreBuilder, class: Class) -> Vec<Reg> {
    (0..ROW_BLOCKS).map(|_| b.reg(class)).collect()
}

/// A pointer to the first two blocks of a step, and one to the next two.
fn pair_of_pointers(b: &mut CoreBuilder, k: Kernel, region: Region, address: Reg) -> [Reg; 2] {
    let second = b.add(address, 2 * BLOCK_BYTES);
    [address, second].map(|address| k.pointer(b, region, address))
}

/// Loads one or two blocks of a step of `blocks` blocks, and moves the pointer on to the next step, only once: a pointer that
/// moves with each load makes every load wait for the one before.
fn load(b: &mut CoreBuilder, targets: &[Reg], pointer: Reg, blocks: usize) {
    let halves: Vec<Reg> = targets.iter().flat_map(|target| [target.lo(), target.hi()]).collect();
    for (half, offset) in halves.iter().zip([0, 32, 64, 96]).skip(1) {
        b.load(*half, pointer, Address::At(offset));
    }
    b.load(halves[0], pointer, Address::Then(blocks as i64 * i64::from(BLOCK_BYTES)));
}
