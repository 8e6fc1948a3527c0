//! Which design makes which operation: a Python file in the designs' folder and a function in it.
//!
//! Files and functions of the operations that the C++ ggml-hsa backend has are named as there, so that its configurations for
//! `ggml-hsa-gen-kernels` work; the others follow the same pattern.

use aie_ops::compiler::DesignName;
use aie_ops::table;

/// Unary functions that are operations of their own in ggml, and named as such.
const UNARY_OPERATIONS: &[&str] = &["SQR", "SQRT", "LOG", "SIN", "COS", "LEAKY_RELU"];
/// Prefixes of functions, longest first.
const PREFIXES: &[&str] = &["ggml_unary_op_", "ggml_glu_op_", "ggml_op_"];

/// Where an operation's design is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSource {
    /// File name, below the designs' folder.
    pub file: String,
    /// Function in the file.
    pub function: String,
}

impl KernelSource {
    /// Of the operation with ggml's description `op`, which is in the table.
    pub fn of(op: &dyn aie_ops::Operation) -> Self {
        let name = op.name().to_ascii_lowercase();
        // Of all operations, only the unary ones leave their parameters out of the name.
        if !op.params_in_name() {
            let prefix = if UNARY_OPERATIONS.contains(&op.name()) { "ggml_op_" } else { "ggml_unary_op_" };
            return Self { file: "unary_ops.py".into(), function: format!("{prefix}{name}") };
        }
        match op.name() {
            "ADD" | "SUB" | "MUL" | "DIV" => Self { file: "binary_ops.py".into(), function: format!("ggml_op_{name}") },
            "REGLU" | "GEGLU" | "SWIGLU" | "SWIGLU_OAI" | "GEGLU_ERF" | "GEGLU_QUICK" | "SWIGLU_CLAMP" => {
                Self { file: "glu_ops.py".into(), function: format!("ggml_glu_op_{name}") }
            }
            _ => Self { file: format!("{name}.py"), function: format!("ggml_op_{name}") },
        }
    }

    /// It, for a compiler.
    pub fn name(&self) -> DesignName<'_> {
        DesignName { file: &self.file, function: &self.function }
    }

    /// The operation that `function` is the design of.
    pub fn operation(function: &str) -> Option<&'static dyn aie_ops::Operation> {
        let name = PREFIXES.iter().find_map(|prefix| function.strip_prefix(prefix))?;
        table::lookup(name).filter(|op| Self::of(*op).function == function)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("ADD", "binary_ops.py", "ggml_op_add")]
    #[case("GELU_ERF", "unary_ops.py", "ggml_unary_op_gelu_erf")]
    #[case("SQR", "unary_ops.py", "ggml_op_sqr")]
    #[case("MUL_MAT", "mul_mat.py", "ggml_op_mul_mat")]
    #[case("CROSS_ENTROPY_LOSS", "cross_entropy_loss.py", "ggml_op_cross_entropy_loss")]
    #[case("SWIGLU", "glu_ops.py", "ggml_glu_op_swiglu")]
    fn sources_are_named_as_in_the_cpp_backend(#[case] op: &str, #[case] file: &str, #[case] function: &str) {
        let source = KernelSource::of(table::lookup(op).unwrap());
        assert_eq!((source.file.as_str(), source.function.as_str()), (file, function));
    }

    #[test]
    fn every_operation_is_found_by_its_function() {
        for op in table::all() {
            let found = KernelSource::operation(&KernelSource::of(op).function).unwrap();
            assert_eq!(found.name(), op.name());
        }
        for wrong in ["add", "ggml_op_", "ggml_unary_op_add", "ggml_op_relu", "ggml_op_ADDX", "GGML_OP_ADD"] {
            assert!(KernelSource::operation(wrong).is_none(), "{wrong}");
        }
    }
}
