//! The inner loops: 16 rows of weights times 16 columns, or one block of columns.
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
//!
//! With i8 a block of rows has 32 bytes, of columns 8 k x 8 columns, of sums 4 rows x 8 columns of i32 (a cm): 8 loads serve 8
//! `vmac` of 256 multiply-accumulates with 8 of the 9 accumulators, so 8 cycles are the bound, all of them with a multiplication.
//! With one block of columns it is 4 cycles, 6 loads and 4 multiplications: 256 multiply-accumulates a cycle as well.

use super::arithmetic::Arithmetic;
use super::kernel::Kernel;
use super::parameters::Parameter;
use crate::codegen::{Address, AliasRegion, Class, CoreBuilder, Reg};

/// Rows of weights in a group: four blocks of four.
pub(super) const GROUP_ROWS: usize = 16;
/// A block of columns: 8 x 4 bf16, or 8 x 8 bytes.
pub(super) const BLOCK_BYTES: u32 = 64;
const ROW_BLOCKS: usize = GROUP_ROWS / 4;
/// What one load brings, and what is loaded through one pointer.
const LOAD_BYTES: i64 = 32;
const POINTER_BYTES: i64 = 128;

/// Adds the products of a group of rows, at the address `source`, and the columns at `columns` to the sums at `group_sums`; sets
/// them if `first` is not zero.
pub(super) fn product(b: &mut CoreBuilder, k: Kernel, [source, columns, group_sums, first]: [Reg; 4], wide: bool) {
    let (arithmetic, blocks) = (k.purpose.arithmetic(), k.purpose.arithmetic().blocks(wide));
    let rows_bytes = (ROW_BLOCKS * arithmetic.rows_bytes()) as i64;
    let columns_bytes = blocks as i64 * i64::from(BLOCK_BYTES);
    let sums_bytes = arithmetic.sums_bytes() as i64;
    let stride = k.modifier(b, Parameter::SumsStride);
    let columns = pointers(b, k, k.columns, columns, columns_bytes);
    let target = k.pointer(b, k.sums, group_sums);
    let units = k.count(b, Parameter::Units, 1);
    b.repeat(units, |b| {
        let accumulators: Vec<Vec<Reg>> = (0..blocks).map(|_| registers(b, arithmetic.accumulator())).collect();
        let from = b.pointer(k.sums);
        b.mov(from, target);
        // What arrived and what was decoded are read by the same loop; only the latter is written by the core.
        let weights = pointers(b, k, k.decoded, source, rows_bytes);
        b.when_else(
            first,
            |b| accumulators.iter().flatten().for_each(|sum| clear(b, *sum)),
            |b| {
                for block in &accumulators {
                    for (index, sum) in block.iter().enumerate() {
                        b.load(*sum, from, Address::At(sums_bytes * index as i64));
                    }
                    b.advance(from, stride);
                }
            },
        );
        let steps = k.count(b, Parameter::Steps, 4).multiple_of(4);
        b.name_loop(match (arithmetic, wide) {
            (Arithmetic::Floats, true) => "product of 16 columns",
            (Arithmetic::Floats, false) => "product of 4 columns",
            (Arithmetic::Integers, true) => "product of 16 columns of i8",
            (Arithmetic::Integers, false) => "product of 8 columns of i8",
        });
        b.repeat(steps, |b| {
            let rows = registers(b, Class::X);
            let lanes: Vec<Reg> = (0..blocks).map(|_| b.reg(Class::X)).collect();
            let row_parts: Vec<Reg> = match arithmetic {
                Arithmetic::Floats => halves(&rows),
                Arithmetic::Integers => {
                    // The upper half counts for nothing.
                    rows.iter().for_each(|row| b.undefined(*row));
                    rows.iter().map(|row| row.lo()).collect()
                }
            };
            load(b, &row_parts, &weights, rows_bytes);
            load(b, &halves(&lanes), &columns, columns_bytes);
            for (index, row) in rows.iter().enumerate() {
                for (lane, block) in lanes.iter().zip(&accumulators) {
                    arithmetic.mac(b, block[index], [*row, *lane], k.matrix);
                }
            }
        });
        for block in &accumulators {
            for (index, sum) in block.iter().enumerate() {
                b.store(*sum, target, Address::At(sums_bytes * index as i64));
            }
            b.advance(target, stride);
        }
    });
}

/// A register for each block of rows.
fn registers(b: &mut CoreBuilder, class: Class) -> Vec<Reg> {
    (0..ROW_BLOCKS).map(|_| b.reg(class)).collect()
}

fn halves(vectors: &[Reg]) -> Vec<Reg> {
    vectors.iter().flat_map(|vector| [vector.lo(), vector.hi()]).collect()
}

/// Sets sums to zero.
fn clear(b: &mut CoreBuilder, sum: Reg) {
    match sum.class() {
        Class::Acc1024 => [sum.lo(), sum.hi()].into_iter().for_each(|half| clear(b, half)),
        _ => b.emit("vclr", [sum]),
    }
}

/// Pointers to the parts of a step that are loaded through one each.
fn pointers(b: &mut CoreBuilder, k: Kernel, region: AliasRegion, address: Reg, step_bytes: i64) -> Vec<Reg> {
    let parts = (0..step_bytes).step_by(POINTER_BYTES as usize);
    parts
        .map(|offset| {
            let part = if offset == 0 { address } else { b.add(address, offset as u32) };
            k.pointer(b, region, part)
        })
        .collect()
}

/// Loads the parts of a step, and moves each pointer on to the next step, only once: a pointer that moves with each load makes
/// every load wait for the one before.
fn load(b: &mut CoreBuilder, parts: &[Reg], pointers: &[Reg], step_bytes: i64) {
    for (parts, pointer) in parts.chunks((POINTER_BYTES / LOAD_BYTES) as usize).zip(pointers) {
        for (part, offset) in parts.iter().zip((0..).step_by(LOAD_BYTES as usize)).skip(1) {
            b.load(*part, *pointer, Address::At(offset));
        }
        b.load(parts[0], *pointer, Address::Then(step_bytes));
    }
}
