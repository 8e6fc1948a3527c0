//! All operations.
//!
//! Node names are looked up here by the ggml bridge, the kernel store, the executor of reference artifacts. A family
//! is listed once, below.

use crate::family;
use crate::operation::{Operation, Placement};
use crate::tensor::DataType;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The families, in the order of the documentation.
static FAMILIES: &[&[&dyn Operation]] = &[
    family::binary::OPERATIONS,
    family::unary::OPERATIONS,
    family::silu_back::OPERATIONS,
    family::glu::OPERATIONS,
    family::norm::OPERATIONS,
    family::soft_max::OPERATIONS,
    family::rope::OPERATIONS,
    family::mul_mat::OPERATIONS,
    family::rows::OPERATIONS,
    family::copy::OPERATIONS,
    family::reduce::OPERATIONS,
    family::loss::OPERATIONS,
    family::attention::OPERATIONS,
    family::mixture::OPERATIONS,
    family::ssm::OPERATIONS,
    family::delta_net::OPERATIONS,
    family::recurrence::OPERATIONS,
    family::repeat::OPERATIONS,
    family::concat::OPERATIONS,
    family::pad::OPERATIONS,
    family::roll::OPERATIONS,
    family::window::OPERATIONS,
    family::diagonal::OPERATIONS,
    family::solve::OPERATIONS,
    family::outer_product::OPERATIONS,
    family::sort::OPERATIONS,
    family::mask::OPERATIONS,
    family::fill::OPERATIONS,
    family::fused::OPERATIONS,
    family::im2col::OPERATIONS,
    family::pool::OPERATIONS,
    family::upscale::OPERATIONS,
    family::timestep::OPERATIONS,
];

static BY_NAME: LazyLock<HashMap<&'static str, &'static dyn Operation>> =
    LazyLock::new(|| all().map(|op| (op.name(), op)).collect());

/// Every operation.
pub fn all() -> impl Iterator<Item = &'static dyn Operation> {
    FAMILIES.iter().flat_map(|family| family.iter().copied())
}

/// Finds an operation by ggml's description, in any case. Cheap for upper case, which ggml uses.
pub fn lookup(name: &str) -> Option<&'static dyn Operation> {
    BY_NAME.get(name).or_else(|| BY_NAME.get(name.to_ascii_uppercase().as_str())).copied()
}

/// One operation as the documentation shows it.
#[derive(Debug)]
pub struct Row {
    /// Name.
    pub name: &'static str,
    /// The operations it stands for, when it is a fused one.
    pub stands_for: Vec<&'static str>,
    /// Where it runs; several when that depends on the node.
    pub places: Vec<TypeGroup>,
}

/// The types with which an operation runs in one place.
#[derive(Debug)]
pub struct TypeGroup {
    /// Where, and why on the host.
    pub placement: Placement,
    /// Types of source 0 (of the result, without sources), in [`DataType::ALL`]'s order.
    pub types: Vec<DataType>,
}

/// The table for the documentation: what each operation's rules accept, and where it runs.
///
/// The rules are asked, not described a second time: for every operation typical nodes with every type are made up
/// ([`Operation::examples`]), and what [`Operation::check`] accepts is listed by placement and by the type of source 0.
pub fn rows() -> Vec<Row> {
    all().map(|op| Row { name: op.name(), stands_for: stands_for(op), places: places(op) }).collect()
}

/// The operations of ggml's graph that a fused one stands for, in order; empty for ggml's own.
fn stands_for(op: &dyn Operation) -> Vec<&'static str> {
    op.fused_form().map_or_else(Vec::new, |form| form.parts.iter().map(|part| part.op).collect())
}

fn places(op: &dyn Operation) -> Vec<TypeGroup> {
    let mut places: Vec<TypeGroup> = Vec::new();
    for &dtype in DataType::ALL {
        let Some(node) = op.examples(dtype).into_iter().find(|node| op.check(node).is_ok()) else { continue };
        let placement = op.placement(&node);
        match places.iter_mut().find(|place| place.placement == placement) {
            Some(place) => place.types.push(dtype),
            None => places.push(TypeGroup { placement, types: vec![dtype] }),
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn names_are_unique_and_upper_case() {
        let mut seen = HashSet::new();
        for op in all() {
            assert!(seen.insert(op.name()), "{} is listed twice", op.name());
            assert_eq!(op.name(), op.name().to_ascii_uppercase());
        }
    }

    #[test]
    fn lookup_ignores_case() {
        for op in all() {
            for name in [op.name().to_owned(), op.name().to_ascii_lowercase()] {
                assert_eq!(lookup(&name).unwrap().name(), op.name());
            }
        }
        assert!(lookup("NO_SUCH_OPERATION").is_none());
    }

    #[test]
    fn a_language_models_operations_are_there() {
        let names = "ADD SUB MUL DIV SCALE SOFT_MAX RMS_NORM NORM ROPE SWIGLU GEGLU REGLU SWIGLU_OAI GEGLU_ERF GEGLU_QUICK \
                     SILU GELU RELU MUL_MAT GET_ROWS SET_ROWS CPY CONT DUP";
        let missing: Vec<_> = names.split_whitespace().filter(|name| lookup(name).is_none()).collect();
        assert!(missing.is_empty(), "missing: {missing:?}");
    }

    #[test]
    fn every_operation_accepts_an_example_and_is_placed() {
        for row in rows() {
            assert!(!row.places.is_empty(), "{} accepts no example", row.name);
            for place in row.places {
                if let Placement::Host(reason) = place.placement {
                    assert!(reason.len() > 10, "{}: {reason}", row.name);
                }
            }
        }
    }

    #[test]
    fn fused_operations_stand_for_listed_ones() {
        let fused: Vec<_> = all().filter(|op| op.fused_form().is_some()).collect();
        assert!(fused.len() >= 2);
        for op in fused {
            let parts = stands_for(op);
            assert!(parts.len() > 1 && parts.iter().all(|part| lookup(part).is_some()), "{op:?}");
        }
    }
}
