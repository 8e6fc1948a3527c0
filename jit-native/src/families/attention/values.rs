//! Sums of values: exponentials (4 heads x 8 keys) times values (8 keys x 4 elements), sixteen elements at a time.

use super::emit::{Kernel, VALUES};
use super::parameters::Parameter;
use crate::codegen::{Address, Class, CoreBuilder, Reg};

/// `T16_8x4`: eight keys x four heads, transposed.
const TRANSPOSE: i64 = 28;

/// Adds a tile's values at `address`, times the exponentials, to the state at `state`.
pub(in crate::families) fn values(b: &mut CoreBuilder, k: Kernel, address: Reg, state: Reg) {
    let target = k.pointer(b, k.state, state);
    b.advance(target, i64::from(VALUES));
    // Four elements of all keys are contiguous.
    let four = k.parameter(b, Parameter::Eights);
    b.binary_into(four, "lshl", four, 6);
    let mode = b.scalar(TRANSPOSE);
    let group = b.reg(Class::Scalar);
    b.mov(group, address);
    let groups = k.count(b, Parameter::ValueGroups, 1);
    b.repeat(groups, |b| {
        let sums: Vec<Reg> = (0..4).map(|_| b.reg(Class::Acc512)).collect();
        for (index, sum) in sums.iter().enumerate() {
            b.load(*sum, target, Address::At(64 * index as i64));
        }
        let from = [(); 4].map(|()| {
            let pointer = k.pointer(b, k.cache, group);
            b.emit("add", [group, group, four]);
            pointer
        });
        let exponentials = k.pointer_to(b, k.exponentials, Parameter::Exponentials);
        let steps = k.count(b, Parameter::Eights, 2).multiple_of(2);
        b.name_loop("values");
        b.repeat(steps, |b| {
            let (keys, heads) = (b.reg(Class::X), b.reg(Class::X));
            b.load(keys, exponentials, Address::Then(64));
            b.shuffle(heads, keys, keys, mode);
            let blocks: Vec<Reg> = (0..4).map(|_| b.reg(Class::X)).collect();
            for (block, pointer) in blocks.iter().zip(from) {
                b.load(*block, pointer, Address::Then(64));
            }
            for (block, sum) in blocks.iter().zip(&sums) {
                b.mac_f(*sum, *sum, heads, *block, k.matrix);
            }
        });
        for (index, sum) in sums.iter().enumerate() {
            b.store(*sum, target, Address::At(64 * index as i64));
        }
        b.advance(target, 256);
    });
}
