//! ggml's structures, field by field (ggml.h, ggml-impl.h, ggml-backend.h, ggml-backend-impl.h).
//!
//! Where the layouts differ a structure exists once per layout; [`super::layout::Layout`] says which one the loaded ggml
//! uses. Callbacks are nullable (`Option`). Sizes and offsets are asserted in the tests below against figures taken from
//! ggml's own headers.

use super::layout::Layout;
use std::ffi::{c_char, c_int, c_void};

/// `GGML_MAX_SRC`.
pub const MAX_SRC: usize = 10;

/// `GGML_TENSOR_FLAG_INPUT`.
pub const FLAG_INPUT: i32 = 1;
/// `GGML_TENSOR_FLAG_OUTPUT`.
pub const FLAG_OUTPUT: i32 = 2;
/// `GGML_TENSOR_FLAG_COMPUTE`.
pub const FLAG_COMPUTE: i32 = 16;

/// `GGML_BACKEND_BUFFER_USAGE_WEIGHTS`.
pub const USAGE_WEIGHTS: c_int = 1;

/// `enum ggml_status`.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// `GGML_STATUS_FAILED`.
    Failed = -1,
    /// `GGML_STATUS_SUCCESS`.
    Success = 0,
}

/// `struct ggml_tensor`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's, documented in ggml.h")]
pub struct RawTensor {
    pub dtype: c_int,
    pub buffer: *mut c_void,
    pub ne: [i64; 4],
    pub nb: [usize; 4],
    pub op: c_int,
    pub op_params: [i32; 16],
    pub flags: i32,
    pub src: [*mut RawTensor; MAX_SRC],
    pub view_src: *mut RawTensor,
    pub view_offs: usize,
    pub data: *mut c_void,
    pub name: [c_char; 64],
    pub extra: *mut c_void,
    pub padding: [c_char; 8],
}

/// The first fields of `struct ggml_cgraph`; the same in every supported version.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's, documented in ggml-impl.h")]
pub struct RawGraph {
    pub size: c_int,
    pub n_nodes: c_int,
    pub n_leafs: c_int,
    pub nodes: *mut *mut RawTensor,
    pub grads: *mut *mut RawTensor,
    pub grad_accs: *mut *mut RawTensor,
    pub leafs: *mut *mut RawTensor,
    /// By slot of `visited`.
    pub use_counts: *const i32,
    pub visited: RawHashSet,
}

/// `struct ggml_hash_set`: open addressing, linear probing, the hash is the address without its last four bits.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's, documented in ggml-impl.h")]
pub struct RawHashSet {
    pub size: usize,
    /// A bit for each slot.
    pub used: *const u32,
    pub keys: *const *const RawTensor,
}

/// The first fields of `struct ggml_type_traits`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's, documented in ggml.h")]
pub struct RawTypeTraits {
    pub type_name: *const c_char,
    pub blck_size: i64,
    pub blck_size_interleave: i64,
    pub type_size: usize,
    pub is_quantized: bool,
}

/// `struct ggml_backend_dev_caps`. `mmap_support` was added in 0.20; before that it fell into padding.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[allow(missing_docs, reason = "the fields are ggml's, documented in ggml-backend.h")]
pub struct RawDeviceCaps {
    pub async_: bool,
    pub host_buffer: bool,
    pub buffer_from_host_ptr: bool,
    pub events: bool,
    pub mmap_support: bool,
}

/// `struct ggml_backend_dev_props`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's, documented in ggml-backend.h")]
pub struct RawDeviceProps {
    pub name: *const c_char,
    pub description: *const c_char,
    pub memory_free: usize,
    pub memory_total: usize,
    pub device_type: c_int,
    pub device_id: *const c_char,
    pub caps: RawDeviceCaps,
}

/// Declares a table of nullable callbacks.
macro_rules! callbacks {
    ($(#[$doc:meta])* $name:ident { $($field:ident: fn($($arg:ty),*) $(-> $ret:ty)?;)* }) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Default)]
        #[allow(missing_docs, reason = "the callbacks are ggml's, documented in ggml-backend-impl.h")]
        pub struct $name { $(pub $field: Option<unsafe extern "C" fn($($arg),*) $(-> $ret)?>,)* }
    };
}

type Ptr = *mut c_void;
type Tensor = *mut RawTensor;
type ConstTensor = *const RawTensor;

/// A callback that we leave out, or that no layout in use has: null, or nothing.
pub trait Omitted: Copy + Default {}

/// Null.
#[repr(transparent)]
#[derive(Clone, Copy, Default)]
pub struct Null(usize);

impl Omitted for () {}
impl Omitted for Null {}

/// `struct ggml_backend_buffer_type_i`: with `()` before 0.26, with [`Null`] from then on.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs, reason = "the callbacks are ggml's, documented in ggml-backend-impl.h")]
pub struct BufferTypeI<N: Omitted> {
    pub get_name: Option<unsafe extern "C" fn(Ptr) -> *const c_char>,
    pub alloc_buffer: Option<unsafe extern "C" fn(Ptr, usize) -> Ptr>,
    pub alloc_buffer_n: N,
    pub get_alignment: Option<unsafe extern "C" fn(Ptr) -> usize>,
    pub get_max_size: Option<unsafe extern "C" fn(Ptr) -> usize>,
    pub get_alloc_size: Option<unsafe extern "C" fn(Ptr, ConstTensor) -> usize>,
    pub get_alloc_size_n: N,
    pub is_host: Option<unsafe extern "C" fn(Ptr) -> bool>,
}

callbacks! {
    /// The beginning of `struct ggml_backend_buffer_i`.
    BufferHead {
        free_buffer: fn(Ptr);
        get_base: fn(Ptr) -> Ptr;
        init_tensor: fn(Ptr, Tensor) -> Status;
        memset_tensor: fn(Ptr, Tensor, u8, usize, usize);
        set_tensor: fn(Ptr, Tensor, *const c_void, usize, usize);
        get_tensor: fn(Ptr, ConstTensor, Ptr, usize, usize);
    }
}

callbacks! {
    /// What 0.10 inserted into `struct ggml_backend_buffer_i`, and likewise into `struct ggml_backend_i`.
    Inserted2d {
        set_tensor_2d: fn(Ptr, Tensor, *const c_void, usize, usize, usize, usize, usize);
        get_tensor_2d: fn(Ptr, ConstTensor, Ptr, usize, usize, usize, usize, usize);
    }
}

callbacks! {
    /// The end of `struct ggml_backend_buffer_i`.
    BufferTail {
        cpy_tensor: fn(Ptr, ConstTensor, Tensor) -> bool;
        clear: fn(Ptr, u8);
        reset: fn(Ptr);
    }
}

callbacks! {
    /// The beginning of `struct ggml_backend_i`.
    BackendHead {
        get_name: fn(Ptr) -> *const c_char;
        free: fn(Ptr);
        set_tensor_async: fn(Ptr, Tensor, *const c_void, usize, usize);
        get_tensor_async: fn(Ptr, ConstTensor, Ptr, usize, usize);
    }
}

callbacks! {
    /// The end of `struct ggml_backend_i`. `graph_optimize`, which we leave out, takes a third argument from 0.10 on.
    BackendTail {
        cpy_tensor_async: fn(Ptr, Ptr, ConstTensor, Tensor) -> bool;
        synchronize: fn(Ptr);
        graph_plan_create: fn(Ptr, *const RawGraph) -> Ptr;
        graph_plan_free: fn(Ptr, Ptr);
        graph_plan_update: fn(Ptr, Ptr, *const RawGraph);
        graph_plan_compute: fn(Ptr, Ptr) -> Status;
        graph_compute: fn(Ptr, *mut RawGraph) -> Status;
        event_record: fn(Ptr, Ptr);
        event_wait: fn(Ptr, Ptr);
        graph_optimize: fn(Ptr, *mut RawGraph);
    }
}

/// A table into which 0.10 inserted callbacks: `I` is `()` before that, [`Inserted2d`] from then on.
#[repr(C)]
#[derive(Clone, Copy, Default)]
#[allow(missing_docs, reason = "the callbacks are ggml's, documented in ggml-backend-impl.h")]
pub struct Table<H, I, T> {
    pub head: H,
    pub inserted: I,
    pub tail: T,
}

/// `struct ggml_backend_buffer_i`.
pub type BufferI<I> = Table<BufferHead, I, BufferTail>;
/// `struct ggml_backend_i`.
pub type BackendI<I> = Table<BackendHead, I, BackendTail>;

callbacks! {
    /// `struct ggml_backend_device_i`.
    DeviceI {
        get_name: fn(Ptr) -> *const c_char;
        get_description: fn(Ptr) -> *const c_char;
        get_memory: fn(Ptr, *mut usize, *mut usize);
        get_type: fn(Ptr) -> c_int;
        get_props: fn(Ptr, *mut RawDeviceProps);
        init_backend: fn(Ptr, *const c_char) -> Ptr;
        get_buffer_type: fn(Ptr) -> Ptr;
        get_host_buffer_type: fn(Ptr) -> Ptr;
        buffer_from_host_ptr: fn(Ptr, Ptr, usize, usize) -> Ptr;
        supports_op: fn(Ptr, ConstTensor) -> bool;
        supports_buft: fn(Ptr, Ptr) -> bool;
        offload_op: fn(Ptr, ConstTensor) -> bool;
        event_new: fn(Ptr) -> Ptr;
        event_free: fn(Ptr, Ptr);
        event_synchronize: fn(Ptr, Ptr);
    }
}

callbacks! {
    /// `struct ggml_backend_reg_i`.
    RegistryI {
        get_name: fn(Ptr) -> *const c_char;
        get_device_count: fn(Ptr) -> usize;
        get_device: fn(Ptr, usize) -> Ptr;
        get_proc_address: fn(Ptr, *const c_char) -> Ptr;
    }
}

/// `struct ggml_backend_buffer_type`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's")]
pub struct RawBufferType<N: Omitted> {
    pub iface: BufferTypeI<N>,
    pub device: *mut c_void,
    pub context: *mut c_void,
}

/// `struct ggml_backend_buffer`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's")]
pub struct RawBuffer<I> {
    pub iface: BufferI<I>,
    pub buft: *mut c_void,
    pub context: *mut c_void,
    pub size: usize,
    pub usage: c_int,
}

impl<I> RawBuffer<I> {
    fn fields(&self) -> BufferFields {
        let Self { iface, buft, context, size, usage } = self;
        BufferFields { buft: *buft, context: *context, size: *size, usage: *usage, get_base: iface.head.get_base }
    }
}

/// What a buffer has in every layout.
#[allow(missing_docs, reason = "the fields are ggml's")]
pub struct BufferFields {
    pub buft: *mut c_void,
    pub context: *mut c_void,
    pub size: usize,
    pub usage: c_int,
    pub get_base: Option<unsafe extern "C" fn(Ptr) -> Ptr>,
}

impl BufferFields {
    /// Reads a buffer.
    ///
    /// # Safety
    /// `buffer` is a live `ggml_backend_buffer` in `layout`.
    #[inline]
    pub unsafe fn of(layout: Layout, buffer: *const c_void) -> Self {
        // SAFETY: by the contract of this function.
        unsafe {
            match layout {
                Layout::V2a => (*buffer.cast::<RawBuffer<()>>()).fields(),
                Layout::V2b | Layout::V3 => (*buffer.cast::<RawBuffer<Inserted2d>>()).fields(),
            }
        }
    }
}

/// `struct ggml_backend`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's")]
pub struct RawBackend<I> {
    pub guid: *mut [u8; 16],
    pub iface: BackendI<I>,
    pub device: *mut c_void,
    pub context: *mut c_void,
}

/// `struct ggml_backend_event`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's")]
pub struct RawEvent {
    pub device: *mut c_void,
    pub context: *mut c_void,
}

/// `struct ggml_backend_device`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's")]
pub struct RawDevice {
    pub iface: DeviceI,
    pub reg: *mut c_void,
    pub context: *mut c_void,
}

/// `struct ggml_backend_reg`.
#[repr(C)]
#[allow(missing_docs, reason = "the fields are ggml's")]
pub struct RawRegistry {
    pub api_version: c_int,
    pub iface: RegistryI,
    pub context: *mut c_void,
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;
    use std::mem::{offset_of, size_of};

    #[rstest]
    #[case("ggml_tensor", size_of::<RawTensor>(), 336)]
    #[case("ggml_backend_buffer_type_i v2", size_of::<BufferTypeI<()>>(), 48)]
    #[case("ggml_backend_buffer_type_i v3", size_of::<BufferTypeI<Null>>(), 64)]
    #[case("ggml_backend_buffer_type v2", size_of::<RawBufferType<()>>(), 64)]
    #[case("ggml_backend_buffer_type v3", size_of::<RawBufferType<Null>>(), 80)]
    #[case("ggml_backend_buffer_i v2a", size_of::<BufferI<()>>(), 72)]
    #[case("ggml_backend_buffer_i v2b", size_of::<BufferI<Inserted2d>>(), 88)]
    #[case("ggml_backend_buffer v3", size_of::<RawBuffer<Inserted2d>>(), 120)]
    #[case("ggml_backend_i v2a", size_of::<BackendI<()>>(), 112)]
    #[case("ggml_backend_i v2b", size_of::<BackendI<Inserted2d>>(), 128)]
    #[case("ggml_backend v3", size_of::<RawBackend<Inserted2d>>(), 152)]
    #[case("ggml_backend_device_i", size_of::<DeviceI>(), 120)]
    #[case("ggml_backend_device", size_of::<RawDevice>(), 136)]
    #[case("ggml_backend_reg", size_of::<RawRegistry>(), 48)]
    #[case("ggml_backend_dev_props", size_of::<RawDeviceProps>(), 56)]
    #[case("ggml_backend_dev_caps", size_of::<RawDeviceCaps>(), 5)]
    #[case("ggml_status", size_of::<Status>(), 4)]
    fn sizes_are_those_of_ggml(#[case] name: &str, #[case] ours: usize, #[case] ggml: usize) {
        assert_eq!(ours, ggml, "{name}");
    }

    #[rstest]
    #[case("tensor.buffer", offset_of!(RawTensor, buffer), 8)]
    #[case("tensor.ne", offset_of!(RawTensor, ne), 16)]
    #[case("tensor.nb", offset_of!(RawTensor, nb), 48)]
    #[case("tensor.op", offset_of!(RawTensor, op), 80)]
    #[case("tensor.flags", offset_of!(RawTensor, flags), 148)]
    #[case("tensor.src", offset_of!(RawTensor, src), 152)]
    #[case("tensor.view_src", offset_of!(RawTensor, view_src), 232)]
    #[case("tensor.data", offset_of!(RawTensor, data), 248)]
    #[case("tensor.name", offset_of!(RawTensor, name), 256)]
    #[case("cgraph.n_nodes", offset_of!(RawGraph, n_nodes), 4)]
    #[case("cgraph.nodes", offset_of!(RawGraph, nodes), 16)]
    #[case("buft.is_host v2", offset_of!(BufferTypeI<()>, is_host), 40)]
    #[case("buft.is_host v3", offset_of!(BufferTypeI<Null>, is_host), 56)]
    #[case("buft.device v3", offset_of!(RawBufferType<Null>, device), 64)]
    #[case("buffer.clear v2b", offset_of!(BufferI<Inserted2d>, tail.clear), 72)]
    #[case("buffer.usage v2a", offset_of!(RawBuffer<()>, usage), 96)]
    #[case("buffer.usage v2b", offset_of!(RawBuffer<Inserted2d>, usage), 112)]
    #[case("backend.synchronize v2b", 8 + offset_of!(BackendI<Inserted2d>, tail.synchronize), 64)]
    #[case("backend.graph_compute v2b", 8 + offset_of!(BackendI<Inserted2d>, tail.graph_compute), 104)]
    #[case("backend.device v2b", offset_of!(RawBackend<Inserted2d>, device), 136)]
    #[case("device.supports_op", offset_of!(DeviceI, supports_op), 72)]
    #[case("device.reg", offset_of!(RawDevice, reg), 120)]
    #[case("reg.get_proc_address", 8 + offset_of!(RegistryI, get_proc_address), 32)]
    #[case("type_traits.type_size", offset_of!(RawTypeTraits, type_size), 24)]
    #[case("type_traits.is_quantized", offset_of!(RawTypeTraits, is_quantized), 32)]
    fn offsets_are_those_of_ggml(#[case] name: &str, #[case] ours: usize, #[case] ggml: usize) {
        assert_eq!(ours, ggml, "{name}");
    }
}
