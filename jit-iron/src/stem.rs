//! File names of kernels.
//!
//! A kernel's file is named as the kernel, which other backends rely on. Two things need more: operations whose names leave out
//! parameters that matter get a digest of these behind it, and names of fused operations that no file system takes are cut.

use aie_ops::name::kernel_name;
use aie_ops::{Node, Operation};
use sha2::{Digest, Sha256};

/// Longest stem in bytes. File systems take names of 255, of which an ending and a writer's own marks need some.
pub const LONGEST: usize = 200;

/// The stem of the files of a normalised node's kernel, which [`kernel_name`] has named `name`.
pub fn kernel_stem(op: &dyn Operation, node: &Node, name: &str) -> String {
    let mut stem = name.to_owned();
    let nameless = op.nameless_params(&node.params);
    if !nameless.is_empty() {
        let bytes: Vec<u8> = nameless.iter().flat_map(|word| word.to_le_bytes()).collect();
        stem.push('~');
        stem.push_str(&digest(&bytes));
    }
    if stem.len() > LONGEST {
        let digest = digest(stem.as_bytes());
        stem.truncate(LONGEST - digest.len() - 1);
        stem.push('~');
        stem.push_str(&digest);
    }
    stem
}

/// As [`kernel_stem`], naming the node first.
pub fn stem_of(op: &dyn Operation, node: &Node) -> String {
    kernel_stem(op, node, &kernel_name(op, node))
}

/// Enough of a SHA-256 to tell kernels of one name apart.
fn digest(bytes: &[u8]) -> String {
    Sha256::digest(bytes)[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::{DataType, OpParams, Tensor, table};

    fn unary(op: &str, words: [i32; 5]) -> String {
        let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let mut params = OpParams::default();
        params.0[..5].copy_from_slice(&words);
        stem_of(table::lookup(op).unwrap(), &Node::new(op, params, tensor, vec![Some(tensor)]))
    }

    #[test]
    fn parameters_outside_the_name_are_added_where_they_matter() {
        assert_eq!(unary("RELU", [6, 0, 0, 0, 0]), "relu-64f32-64f32");
        assert_eq!(unary("RELU", [7, 0, 0, 0, 0]), "relu-64f32-64f32");
        let (gentle, steep) = (unary("LEAKY_RELU", [1, 0, 0, 0, 0]), unary("LEAKY_RELU", [2, 0, 0, 0, 0]));
        assert!(gentle.starts_with("leaky_relu-64f32-64f32~") && steep.starts_with("leaky_relu-64f32-64f32~"));
        assert_ne!(gentle, steep);
        assert_ne!(unary("XIELU", [9, 1, 2, 3, 4]), unary("XIELU", [9, 1, 2, 3, 5]));
        assert_eq!(unary("XIELU", [9, 1, 2, 3, 4]), unary("XIELU", [8, 1, 2, 3, 4]));
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let op = table::lookup("ADD").unwrap();
        let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let node = Node::new("ADD", OpParams::default(), tensor, vec![Some(tensor); 2]);
        let (first, second) = ("x".repeat(300), "x".repeat(301));
        let (first, second) = (kernel_stem(op, &node, &first), kernel_stem(op, &node, &second));
        assert_eq!((first.len(), second.len()), (LONGEST, LONGEST));
        assert_ne!(first, second);
        assert_eq!(kernel_stem(op, &node, &"x".repeat(LONGEST)).len(), LONGEST);
    }
}
