//! What to write instead, where an operation's own message leaves a writer of configurations puzzled.
//!
//! An operation reports the first rule that a node breaks, which is enough for a graph that ggml has checked. People who write
//! a product by hand think of matrices as rows by columns and of results in the type of the sources, and break several rules
//! of ggml's at once.

use super::tensor_text::describe;
use aie_ops::{DataType, Node, Tensor};

/// More about why `node` is refused, if there is more to say.
pub(super) fn advice(node: &Node) -> Option<String> {
    match node.op.as_str() {
        "MUL_MAT" => product(node.source(0)?, node.source(1)?, &node.output),
        _ => None,
    }
}

fn product(a: &Tensor, b: &Tensor, out: &Tensor) -> Option<String> {
    let mut broken = Vec::new();
    if a.ne[0] != b.ne[0] {
        broken.push(format!(
            "src0.ne0 must equal src1.ne0, here {} and {} (ggml multiplies rows with rows, so that (k,m) with (k,n) gives (m,n))",
            a.ne[0], b.ne[0]
        ));
    }
    let ne = [a.ne[1], b.ne[1], b.ne[2], b.ne[3]];
    if out.ne != ne {
        broken.push(format!("the result has the extents {ne:?}, here {:?}", out.ne));
    }
    if out.dtype != DataType::F32 {
        broken.push(format!("the result is f32, here {}", out.dtype));
    }
    if broken.is_empty() {
        return None;
    }
    let expected = describe(&Tensor { dtype: DataType::F32, ne, nb: Tensor::contiguous(DataType::F32, [1; 4]).nb });
    let (shape, _) = expected.split_once("/f32")?;
    Some(format!("in a product {}; write the result as {shape}/f32", broken.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::OpParams;

    fn advise(a: [usize; 4], b: [usize; 4], out: Tensor) -> Option<String> {
        let source = |ne| Some(Tensor::contiguous(DataType::BF16, ne));
        advice(&Node::new("MUL_MAT", OpParams::default(), out, vec![source(a), source(b)]))
    }

    #[test]
    fn every_broken_rule_of_a_product_is_told() {
        let out = Tensor::contiguous(DataType::BF16, [1024, 1024, 1, 1]);
        let told = advise([1024, 768, 1, 1], [768, 1024, 1, 1], out).unwrap();
        for part in [
            "src0.ne0 must equal src1.ne0, here 1024 and 768",
            "the result has the extents [768, 1024, 1, 1], here [1024, 1024, 1, 1]",
            "the result is f32, here bf16",
            "write the result as (768,1024,1,1)/f32",
        ] {
            assert!(told.contains(part), "{told} lacks {part}");
        }
    }

    #[test]
    fn nothing_is_said_about_what_is_right() {
        let out = Tensor::contiguous(DataType::F32, [8, 4, 1, 1]);
        assert_eq!(advise([16, 8, 1, 1], [16, 4, 1, 1], out), None);
        let sum = Node::new("ADD", OpParams::default(), out, vec![Some(out); 2]);
        assert_eq!(advice(&sum), None);
    }
}
