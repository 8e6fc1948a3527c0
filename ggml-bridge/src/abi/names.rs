//! ggml's numbers by name.
//!
//! The numbers of operations move from version to version (`GLU` was 89, 94, 95, 100), their names do not. The table is
//! made once by asking ggml for each name until `GLU`, the last one in every version so far. Types are queried when
//! a tensor first carries them, because there is no end mark to walk to.

use super::symbols::{GgmlError, Symbols};
use aie_ops::DataType;
use std::ffi::c_int;
use std::sync::OnceLock;

/// Largest number of operations the walk tries; ggml 0.27 has about a hundred.
const MAX_OPS: c_int = 512;
const MAX_TYPES: usize = 128;

/// What a node does, according to its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpKind {
    /// A leaf, or a node that only looks at another tensor's memory.
    View,
    /// `UNARY`: the first parameter is the function.
    Unary,
    /// `GLU`: the first parameter is the function.
    Glu,
    /// The operation with this name.
    Named(&'static str),
}

/// Names of the loaded ggml.
pub struct Names {
    ops: Vec<OpKind>,
    types: [OnceLock<Option<DataType>>; MAX_TYPES],
}

impl Names {
    /// Walks ggml's table.
    ///
    /// # Errors
    /// When the table has no `GLU`, so that its end is unknown.
    pub fn new(op_name: impl Fn(c_int) -> Option<&'static str>) -> Result<Self, GgmlError> {
        let mut ops = Vec::new();
        for index in 0..MAX_OPS {
            let name = op_name(index).unwrap_or("");
            ops.push(match name {
                "NONE" | "VIEW" | "RESHAPE" | "PERMUTE" | "TRANSPOSE" => OpKind::View,
                "UNARY" => OpKind::Unary,
                "GLU" => OpKind::Glu,
                name => OpKind::Named(name),
            });
            if name == "GLU" {
                return Ok(Self { ops, types: [const { OnceLock::new() }; MAX_TYPES] });
            }
        }
        Err(GgmlError::Operations)
    }

    /// What operation number `op` is; `None` for a number beyond the table.
    pub fn op(&self, op: c_int) -> Option<OpKind> {
        usize::try_from(op).ok().and_then(|op| self.ops.get(op).copied())
    }

    /// The name of a node's operation as `ggml_op_desc` gives it, in upper case. View operations are `None`.
    pub fn description(&self, symbols: &Symbols, op: c_int, first_param: c_int) -> Option<&'static str> {
        match self.op(op)? {
            OpKind::View => None,
            OpKind::Unary => symbols.unary_op_name(first_param),
            OpKind::Glu => symbols.glu_op_name(first_param),
            OpKind::Named(name) => Some(name),
        }
    }

    /// The element type with ggml's number `raw`, taken from a tensor. `None` when the operations do not know it.
    pub fn data_type(&self, symbols: &Symbols, raw: c_int) -> Option<DataType> {
        let slot = usize::try_from(raw).ok().and_then(|raw| self.types.get(raw))?;
        *slot.get_or_init(|| {
            let dtype = symbols.type_name(raw).and_then(DataType::from_name)?;
            // A block of another size would make every offset wrong: such a type is unknown, whatever its name.
            let fits = symbols.type_traits(raw).is_none_or(|traits| {
                traits.type_size == dtype.block_bytes()
                    && usize::try_from(traits.blck_size) == Ok(dtype.block_elements())
            });
            fits.then_some(dtype)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: [&str; 6] = ["NONE", "ADD", "VIEW", "UNARY", "", "GLU"];

    fn table(index: c_int) -> Option<&'static str> {
        TABLE.get(usize::try_from(index).unwrap()).copied().filter(|n| !n.is_empty())
    }

    #[test]
    fn the_walk_ends_at_glu() {
        let names = Names::new(table).unwrap();
        let kinds: Vec<_> = (0..7).map(|i| names.op(i)).collect();
        let expected =
            [OpKind::View, OpKind::Named("ADD"), OpKind::View, OpKind::Unary, OpKind::Named(""), OpKind::Glu];
        assert_eq!(kinds[..6], expected.map(Some));
        assert_eq!((kinds[6], names.op(-1)), (None, None));
    }

    #[test]
    fn a_table_without_end_is_rejected() {
        assert!(Names::new(|_| Some("ADD")).is_err());
    }
}
