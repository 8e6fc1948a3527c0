//! Sums of values: exponentials times values.

use super::emit::{Kernel, VALUES};
use super::parameters::Parameter;
use crate::codegen::{CoreBuilder, Reg};
use crate::numerics::{Unit, Values};

/// Adds a tile's values at `address`, times the exponentials, to the state at `state`.
pub(in crate::families) fn values<U: Unit>(b: &mut CoreBuilder, k: Kernel<U>, address: Reg, state: Reg) {
    let target = k.pointer(b, k.state, state);
    b.advance(target, i64::from(VALUES));
    let of = Values {
        values: address,
        cache: k.cache,
        exponentials: k.parameter(b, Parameter::Exponentials),
        bf16: k.exponentials,
        state: target,
        eights: k.parameter(b, Parameter::Eights),
        sixteens: k.parameter(b, Parameter::ValueGroups),
    };
    k.heads.values(b, &of);
}
