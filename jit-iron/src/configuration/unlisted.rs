//! Operations that are not in the table: what a design of somebody else computes under a name of its own.
//!
//! Nothing is known about them but their tensors, which the configuration gives. So their kernels are compiled from the tensors as
//! they are, nothing can be compared with their results, and no backend looks for them: a graph of ggml's does not name them.

use aie_hal::HostFunction;
use aie_ops::{DataType, Node, Operation, Unsupported};
use parking_lot::Mutex;
use std::sync::Arc;

/// One of them.
#[derive(Debug)]
struct Unlisted {
    name: &'static str,
}

/// Those that a configuration has named. Operations are known by references that last as long as the process, so each stays.
static KNOWN: Mutex<Vec<&'static Unlisted>> = Mutex::new(Vec::new());

/// The operation `name`, which is not one of ggml's.
pub(super) fn unlisted(name: &str) -> &'static dyn Operation {
    let mut known = KNOWN.lock();
    if let Some(op) = known.iter().find(|op| op.name == name) {
        return *op;
    }
    let op: &'static Unlisted = Box::leak(Box::new(Unlisted { name: name.to_owned().leak() }));
    known.push(op);
    op
}

impl Operation for Unlisted {
    fn name(&self) -> &'static str {
        self.name
    }

    fn check(&self, _node: &Node) -> Result<(), Unsupported> {
        Ok(())
    }

    /// Tensors are passed to the design as they are.
    fn array_type(&self, node: &Node, index: Option<usize>, default: DataType) -> DataType {
        let tensor = index.map_or(Some(&node.output), |index| node.source(index));
        tensor.map_or(default, |tensor| tensor.dtype)
    }

    /// See `array_type`.
    fn keeps_strides(&self, _node: &Node, _index: usize) -> bool {
        true
    }

    /// It may read or write any part of them.
    fn needs_all(&self, _node: &Node, _index: Option<usize>) -> bool {
        false
    }

    fn compute(&self, _node: &Node) -> Result<Arc<dyn HostFunction>, Unsupported> {
        Err(Unsupported::Operation { op: self.name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use aie_ops::{DataType, OpParams, Tensor};

    #[test]
    fn an_operation_is_kept_once_and_computes_nothing() {
        let (one, again, other) = (unlisted("fast.one"), unlisted("fast.one"), unlisted("fast.other"));
        assert!(std::ptr::addr_eq(one, again) && !std::ptr::addr_eq(one, other));
        let tensor = Tensor::contiguous(DataType::F32, [8, 1, 1, 1]);
        let node = Node::new(one.name(), OpParams::default(), tensor, vec![Some(tensor)]);
        assert_eq!(aie_ops::name::kernel_name(one, &node), "fast.one-8f32-8f32");
        let error = one.reference(&node).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("operation fast.one is not in the table"));
    }
}
