//! One requested kernel, and what follows from that: its name, the stem of its files, which nodes it serves.
//!
//! The stem is the kernel's name, which other backends rely on. Three cases need more: operations whose names leave out parameters
//! that matter get a digest of these behind it, kernels for graphs that do without configurations are marked, and names of fused
//! operations that are too long for file systems are cut.

use aie_hal::artifact::Digest;
use aie_hal::{Arch, KernelArtifact};
use aie_ops::compiler::{CompileError, KernelCompiler};
use aie_ops::name::kernel_name;
use aie_ops::{Node, Operation, Tensor};

/// Longest stem in bytes. File systems take names of 255, of which an ending and a writer's own marks need some.
pub const LONGEST: usize = 200;

/// One kernel: the operation and the generation it is for.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Operation of the node.
    pub op: &'a dyn Operation,
    /// The normalised node.
    pub node: &'a Node,
    /// Generation.
    pub arch: &'a Arch,
    /// Kernel name.
    pub name: String,
    /// Whether it is to be [one without a configuration](KernelCompiler::compile_apart).
    pub apart: bool,
}

impl<'a> Wanted<'a> {
    /// The kernel of a normalised node.
    pub fn of(op: &'a dyn Operation, node: &'a Node, arch: &'a Arch) -> Self {
        Self { op, node, arch, name: kernel_name(op, node), apart: false }
    }

    /// Has it made.
    ///
    /// # Errors
    /// As [`KernelCompiler::compile`].
    pub fn compile(&self, compiler: &dyn KernelCompiler) -> Result<KernelArtifact, CompileError> {
        let &Self { op, node, arch, apart, .. } = self;
        if apart { compiler.compile_apart(op, node, arch) } else { compiler.compile(op, node, arch) }
    }

    /// Whether a kernel under this name may be taken: packs and directories have some without the addition to the name.
    pub fn is_with(&self, artifact: &KernelArtifact) -> bool {
        !self.apart || artifact.configuration().is_none()
    }

    /// The stem of its files.
    pub fn stem(&self) -> String {
        let mut stem = self.name.clone();
        let nameless = self.op.nameless_params(&self.node.params);
        if !nameless.is_empty() {
            let bytes: Vec<u8> = nameless.iter().flat_map(|word| word.to_le_bytes()).collect();
            stem += &format!("~{}", short_digest(&bytes));
        }
        if self.apart {
            stem += "~apart";
        }
        if stem.len() > LONGEST {
            let digest = short_digest(stem.as_bytes());
            stem.truncate(LONGEST - digest.len() - 1);
            stem += &format!("~{digest}");
        }
        stem
    }

    /// Whether the kernel of `node`, which has this one's name, is this one.
    pub fn is_of(&self, node: &Node) -> bool {
        same_kernel(self.op, node, self.node)
    }
}

/// Whether one kernel computes both nodes. Parameters in which they may differ are numbers of functions, which vary with
/// ggml's version; tensors may differ in strides that are never walked, which names leave out.
pub(crate) fn same_kernel(op: &dyn Operation, one: &Node, other: &Node) -> bool {
    let same_params = match op.params_in_name() {
        true => one.params == other.params,
        false => op.nameless_params(&one.params) == op.nameless_params(&other.params),
    };
    let tensors = |node: &Node| {
        let sources: Vec<_> = node.sources.iter().map(|source| source.map(walked)).collect();
        let further: Vec<_> = node.further_outputs.iter().copied().map(walked).collect();
        (node.op.clone(), sources, walked(node.output), further)
    };
    same_params && tensors(one) == tensors(other)
}

/// The tensor with the strides of a packed one in dimensions of one element. A cache of another size leaves others there, which would
/// have kernels of one name take turns in overwriting each other.
fn walked(tensor: Tensor) -> Tensor {
    let Tensor { ne, mut nb, .. } = tensor;
    for dimension in 1..ne.len() {
        if ne[dimension] == 1 {
            nb[dimension] = match dimension {
                1 => tensor.dtype.row_bytes(ne[0]),
                _ => nb[dimension - 1].saturating_mul(ne[dimension - 1]),
            };
        }
    }
    Tensor { nb, ..tensor }
}

/// Enough of a SHA-256 to tell kernels of one name apart.
fn short_digest(bytes: &[u8]) -> String {
    Digest::of(bytes).to_string()[..16].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::{arch, sum};
    use aie_ops::{DataType, OpParams, Tensor, table};

    fn unary(op: &str, words: [i32; 5]) -> String {
        let tensor = Tensor::contiguous(DataType::F32, [64, 1, 1, 1]);
        let mut params = OpParams::default();
        params.0[..5].copy_from_slice(&words);
        let node = Node::new(op, params, tensor, vec![Some(tensor)]);
        Wanted::of(table::lookup(op).unwrap(), &node, &arch("aie2")).stem()
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

    /// Keys of one head and 256 positions, in caches of two sizes: only the last stride differs, and it is never walked.
    #[test]
    fn strides_of_single_elements_make_no_other_kernel() {
        let op = table::lookup("SOFT_MAX").unwrap();
        let node = |last: usize, rows: usize| {
            let mut scores = Tensor::contiguous(DataType::F32, [256, rows, 1, 1]);
            scores.nb[2..].copy_from_slice(&[last, last * 4]);
            Node::new("SOFT_MAX", OpParams::default(), scores, vec![Some(scores)])
        };
        assert_eq!(kernel_name(op, &node(4096, 4)), kernel_name(op, &node(1 << 20, 4)));
        assert!(same_kernel(op, &node(4096, 4), &node(1 << 20, 4)));
        assert!(!same_kernel(op, &node(4096, 4), &node(4096, 5)));
        let mut apart = node(4096, 4);
        apart.output.nb[1] = 2048;
        assert!(!same_kernel(op, &node(4096, 4), &apart));
        let whole = Wanted::of(op, &apart, &arch("aie2")).node.clone();
        assert!(same_kernel(op, &whole, &apart));
    }

    #[test]
    fn long_names_are_cut_and_stay_apart() {
        let ((op, node), arch) = (sum(64), arch("aie2"));
        let stem = |length| Wanted { name: "x".repeat(length), ..Wanted::of(op, &node, &arch) }.stem();
        assert_eq!([LONGEST, 300, 301].map(|length| stem(length).len()), [LONGEST; 3]);
        assert_ne!(stem(300), stem(301));
        let apart = Wanted { apart: true, ..Wanted::of(op, &node, &arch) };
        assert_eq!(apart.stem(), format!("{}~apart", apart.name));
    }
}
