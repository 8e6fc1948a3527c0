//! Whose layer a node is part of, judged by where the weights are.
//!
//! llama.cpp leaves layers to the CPU (`-ngl`) by putting their weights into other buffers than ours. ggml's scheduler then asks each
//! device whether it can use those buffers, and a device that can import uses host memory in place. It would be given what of a layer the
//! CPU does not have to do, and the graph be split at each change. So a node follows its weights:
//!
//! - one with weights belongs where they are, as for the scheduler, which leaves out the same two operations;
//! - one that writes into memory of others, as into the KV cache of a layer, belongs where the weights are that its value was made
//!   with, or where it writes, if there are none;
//! - all others the scheduler places beside these.
//!
//! The table of embeddings is an exception: llama.cpp keeps it in memory of the CPU even when the device has all layers.

use super::buffer::inspect;
use super::layout::Layout;
use super::names::OpKind;
use super::types::{BufferFields, RawTensor, USAGE_WEIGHTS};
use std::ffi::{c_int, c_void};

/// Whose layer a node is part of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layer {
    /// The device's, or nothing says whose.
    Own,
    /// It gathers rows of weights that are in memory of others, as the first node of a model does.
    Lookup,
    /// Another's.
    Foreign,
}

/// What is needed to judge.
pub struct Layers<'a> {
    /// Of the loaded ggml.
    pub layout: Layout,
    /// The device that is asked.
    pub device: *mut c_void,
    /// The kind of an operation.
    pub kind: &'a dyn Fn(c_int) -> Option<OpKind>,
}

impl Layers<'_> {
    /// Whose layer `node` is part of.
    ///
    /// # Safety
    /// `node`, its sources, theirs in turn, and what they are views of are valid tensors, whose buffers are null or valid.
    pub unsafe fn of(&self, node: &RawTensor) -> Layer {
        if (self.kind)(node.op) == Some(OpKind::View) {
            return Layer::Own;
        }
        // SAFETY: by the contract of this function, here and below.
        let own = unsafe {
            match self.owns_weights(node) {
                Some(own) => own,
                None if self.writes_elsewhere(node) => self.owns_weights_behind(node),
                None => true,
            }
        };
        match (self.kind)(node.op) {
            _ if own => Layer::Own,
            Some(OpKind::Named("GET_ROWS")) => Layer::Lookup,
            _ => Layer::Foreign,
        }
    }

    /// Whether the first weights among the sources are in memory of the device.
    unsafe fn owns_weights(&self, node: &RawTensor) -> Option<bool> {
        // Their weights, frequencies and sinks, are too small to say anything.
        if matches!((self.kind)(node.op), Some(OpKind::Named("ROPE" | "FLASH_ATTN_EXT"))) {
            return None;
        }
        // SAFETY: by the contract of `of`.
        let mut buffers = node.src.iter().filter_map(|source| unsafe { self.buffer(source.as_ref()?) });
        buffers.find(|buffer| buffer.usage == USAGE_WEIGHTS).map(|buffer| self.owns(&buffer))
    }

    /// Whether the result has its place already, and that in memory of others.
    unsafe fn writes_elsewhere(&self, node: &RawTensor) -> bool {
        // SAFETY: by the contract of `of`.
        unsafe { self.buffer(node) }.is_some_and(|buffer| !self.owns(&buffer))
    }

    /// Whether the nearest weights that made the value of `node` are in memory of the device. The value is the first source.
    unsafe fn owns_weights_behind(&self, node: &RawTensor) -> bool {
        // SAFETY: by the contract of `of`. A graph has no cycles.
        unsafe {
            let first = |node: &&RawTensor| node.src[0].as_ref();
            let mut chain = std::iter::successors(Some(node), first);
            chain.find_map(|node| self.owns_weights(node)).unwrap_or(false)
        }
    }

    /// The buffer that a tensor lies in, once it has one.
    unsafe fn buffer(&self, tensor: &RawTensor) -> Option<BufferFields> {
        // SAFETY: by the contract of `of`.
        unsafe {
            let buffer = tensor.view_src.as_ref().unwrap_or(tensor).buffer;
            (!buffer.is_null()).then(|| BufferFields::of(self.layout, buffer))
        }
    }

    fn owns(&self, buffer: &BufferFields) -> bool {
        // SAFETY: by the contract of `of` the buffer was valid, and with it its type.
        !buffer.buft.is_null() && unsafe { inspect(self.layout, buffer.buft) }.0 == self.device
    }
}

#[cfg(test)]
mod tests {
    use super::super::types::{BufferI, BufferTypeI, Inserted2d, Null, RawBuffer, RawBufferType};
    use super::*;
    use rstest::rstest;
    use std::ptr::{from_mut, null_mut};

    const OURS: usize = 0x10;
    const CPU: usize = 0x20;
    const NAMES: [OpKind; 6] = [
        OpKind::View,
        OpKind::Named("MUL_MAT"),
        OpKind::Named("GET_ROWS"),
        OpKind::Named("ROPE"),
        OpKind::Named("SET_ROWS"),
        OpKind::Named("ADD"),
    ];

    fn number(name: &'static str) -> c_int {
        let found = NAMES.iter().position(|kind| *kind == OpKind::Named(name));
        c_int::try_from(found.unwrap_or(0)).unwrap()
    }

    /// What is made lives until the process ends, as tensors here point to each other.
    fn leak<T>(value: T) -> *mut T {
        from_mut(Box::leak(Box::new(value)))
    }

    fn tensor(op: &'static str, sources: &[*mut RawTensor]) -> *mut RawTensor {
        // SAFETY: a tensor is made of numbers and pointers, all of which may be 0.
        let mut tensor: RawTensor = unsafe { std::mem::zeroed() };
        tensor.op = number(op);
        tensor.src[..sources.len()].copy_from_slice(sources);
        leak(tensor)
    }

    /// A tensor in a buffer of the device with the address `owner`.
    fn placed(owner: usize, usage: c_int) -> *mut RawTensor {
        let buft = RawBufferType::<Null> {
            iface: BufferTypeI::default(),
            device: std::ptr::without_provenance_mut(owner),
            context: null_mut(),
        };
        let iface = BufferI::<Inserted2d>::default();
        let buffer = RawBuffer { iface, buft: leak(buft).cast(), context: null_mut(), size: 64, usage };
        let placed = tensor("NONE", &[]);
        // SAFETY: made above.
        unsafe { (*placed).buffer = leak(buffer).cast() };
        placed
    }

    fn weights(owner: usize) -> *mut RawTensor {
        placed(owner, USAGE_WEIGHTS)
    }

    fn view(of: *mut RawTensor, op: &'static str, sources: &[*mut RawTensor]) -> *mut RawTensor {
        let view = tensor(op, sources);
        // SAFETY: made above.
        unsafe { (*view).view_src = of };
        view
    }

    fn layer(node: *mut RawTensor) -> Layer {
        let kind = |op: c_int| NAMES.get(usize::try_from(op).unwrap()).copied();
        let device = std::ptr::without_provenance_mut(OURS);
        // SAFETY: all tensors of these tests are made above.
        unsafe { Layers { layout: Layout::V3, device, kind: &kind }.of(&*node) }
    }

    /// The product that a cache's rows come from, and the node that writes them.
    fn cache_write(weights_of: usize, cache_of: usize) -> *mut RawTensor {
        let key = tensor("MUL_MAT", &[weights(weights_of), tensor("NONE", &[])]);
        let reshaped = view(key, "NONE", &[key]);
        let rotated = tensor("ROPE", &[reshaped, tensor("NONE", &[]), weights(CPU)]);
        view(placed(cache_of, 0), "SET_ROWS", &[rotated, tensor("NONE", &[])])
    }

    #[rstest]
    #[case::own_weights(OURS, Layer::Own)]
    #[case::the_weights_of_others(CPU, Layer::Foreign)]
    fn a_node_follows_its_weights(#[case] owner: usize, #[case] expected: Layer) {
        let input = tensor("NONE", &[]);
        assert_eq!(layer(tensor("MUL_MAT", &[weights(owner), input])), expected);
        assert_eq!(layer(tensor("ADD", &[input, weights(owner)])), expected);
        let part = view(weights(owner), "NONE", &[]);
        assert_eq!(layer(tensor("ADD", &[input, part])), expected);
    }

    #[rstest]
    #[case::a_layer_of_ours(OURS, OURS, Layer::Own)]
    #[case::with_its_cache_on_the_host(OURS, CPU, Layer::Own)]
    #[case::a_layer_of_the_cpu(CPU, CPU, Layer::Foreign)]
    #[case::with_its_cache_here(CPU, OURS, Layer::Own)]
    fn a_write_to_a_cache_follows_the_weights_of_its_layer(
        #[case] weights_of: usize,
        #[case] cache_of: usize,
        #[case] expected: Layer,
    ) {
        assert_eq!(layer(cache_write(weights_of, cache_of)), expected);
    }

    #[test]
    fn a_result_in_the_memory_of_others_without_weights_is_theirs() {
        let moved = |owner| view(placed(owner, 0), "ROPE", &[placed(owner, 0), tensor("NONE", &[])]);
        assert_eq!(layer(moved(CPU)), Layer::Foreign);
        assert_eq!(layer(moved(OURS)), Layer::Own);
    }

    #[test]
    fn what_has_no_place_yet_is_for_whom_the_scheduler_chooses() {
        let input = placed(CPU, 0);
        assert_eq!(layer(tensor("ADD", &[input, tensor("NONE", &[])])), Layer::Own);
        assert_eq!(layer(tensor("ROPE", &[input, input, weights(CPU)])), Layer::Own);
        assert_eq!(layer(weights(CPU)), Layer::Own);
    }

    #[test]
    fn a_lookup_in_the_weights_of_others_is_told_apart() {
        assert_eq!(layer(tensor("GET_ROWS", &[weights(CPU), tensor("NONE", &[])])), Layer::Lookup);
        assert_eq!(layer(tensor("GET_ROWS", &[weights(OURS), tensor("NONE", &[])])), Layer::Own);
    }
}
