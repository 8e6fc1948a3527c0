//! The function table and how it is filled.

use crate::declaration::{CType, Function};
use crate::*;
use libloading::Library;
use std::ffi::{CStr, c_char, c_void};
use std::mem::ManuallyDrop;

/// A library lacks functions, so it is not an HSA runtime with AMD's extension, or one too old.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the library lacks {} of the {required} functions needed: {}", names.len(), names.join(", "))]
pub struct MissingSymbols {
    /// All functions that are missing.
    pub names: Vec<&'static str>,
    /// How many are needed.
    pub required: usize,
}

macro_rules! function_table {
    (
        $(#[$doc:meta])*
        pub struct $table:ident;
        $($(#[$function_doc:meta])* fn $function:ident($($argument:ident: $type:ty),*) -> $result:ty;)*
    ) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $table {
            $($(#[$function_doc])* pub $function: unsafe extern "C" fn($($argument: $type),*) -> $result,)*
            library: ManuallyDrop<Library>,
        }

        impl $table {
            /// Finds the functions in an opened library.
            ///
            /// On success the library stays loaded for the rest of the process, also after the table is dropped: the
            /// runtime has threads of its own, whose code must not go away.
            ///
            /// # Errors
            ///
            /// Names every function the library does not have.
            ///
            /// # Safety
            ///
            /// `library` must be AMD's HSA runtime or one that is compatible with it: where it has a function of one of
            /// these names, the function must have the type given here.
            pub unsafe fn load(library: Library) -> Result<Self, MissingSymbols> {
                let mut names = Vec::new();
                $(
                    // SAFETY: the caller promises that a function of this name has this type.
                    let $function = unsafe {
                        library.get::<unsafe extern "C" fn($($type),*) -> $result>(stringify!($function))
                    };
                    let $function = $function.ok().map(|symbol| *symbol);
                    if $function.is_none() {
                        names.push(stringify!($function));
                    }
                )*
                match ($($function,)*) {
                    ($(Some($function),)*) => Ok(Self {
                        $($function,)*
                        library: ManuallyDrop::new(library),
                    }),
                    _ => Err(MissingSymbols { names, required: [$(stringify!($function)),*].len() }),
                }
            }
        }

        pub(crate) const FUNCTIONS: &[Function] = &[
            $(Function {
                name: stringify!($function),
                c_type: || prototype::<$result>(&[$(<$type as CType>::c_type()),*]),
            },)*
        ];
    };
}

/// A function's type in C.
fn prototype<R: CType>(arguments: &[String]) -> String {
    let arguments = if arguments.is_empty() { "void".to_owned() } else { arguments.join(", ") };
    format!("{} ({arguments})", R::c_type())
}

/// Called for each agent; anything but success ends the iteration and becomes its result.
type AgentCallback = Option<unsafe extern "C" fn(hsa_agent_t, *mut c_void) -> hsa_status_t>;
/// Called for each memory pool; anything but success ends the iteration and becomes its result.
type PoolCallback = Option<unsafe extern "C" fn(hsa_amd_memory_pool_t, *mut c_void) -> hsa_status_t>;
/// Called when a queue meets an error, from a thread of the runtime.
type QueueCallback = Option<unsafe extern "C" fn(hsa_status_t, *mut hsa_queue_t, *mut c_void)>;

function_table! {
    /// The functions of a loaded runtime, by their C names.
    ///
    /// Every call is `unsafe`: pointers must be valid as the function's line says, handles must come from this runtime and
    /// not be destroyed yet, and unless said otherwise `hsa_init` must have succeeded. The functions may be called from
    /// any thread. A Rust panic must not leave a callback.
    ///
    /// ROCR 7.2 checks some of its own assumptions with `assert`, and so ends the process where a call could have failed;
    /// the table does nothing about that.
    pub struct HsaApi;

    /// Starts the runtime, or counts one more user of it. Opens `/dev/kfd` and the accel nodes at the first call.
    fn hsa_init() -> hsa_status_t;
    /// Undoes one `hsa_init`. The last one destroys every agent, queue and signal.
    fn hsa_shut_down() -> hsa_status_t;
    /// Writes the address of a static text for the status. May be called before `hsa_init`.
    fn hsa_status_string(status: hsa_status_t, text: *mut *const c_char) -> hsa_status_t;
    /// Writes an attribute of the system; `value` has room for the attribute's type.
    fn hsa_system_get_info(attribute: hsa_system_info_t, value: *mut c_void) -> hsa_status_t;
    /// Calls back for every agent, in this thread.
    fn hsa_iterate_agents(callback: AgentCallback, data: *mut c_void) -> hsa_status_t;
    /// Writes an attribute of an agent; `value` has room for the attribute's type.
    fn hsa_agent_get_info(agent: hsa_agent_t, attribute: hsa_agent_info_t, value: *mut c_void) -> hsa_status_t;

    /// Makes a queue of `size` packets (a power of two). The callback may be `None`; segment sizes are for GPUs, and
    /// `u32::MAX` leaves them to the runtime.
    fn hsa_queue_create(
        agent: hsa_agent_t, size: u32, queue_type: hsa_queue_type32_t, callback: QueueCallback, data: *mut c_void,
        private_segment_size: u32, group_segment_size: u32, queue: *mut *mut hsa_queue_t
    ) -> hsa_status_t;
    /// Destroys a queue that no thread uses.
    fn hsa_queue_destroy(queue: *mut hsa_queue_t) -> hsa_status_t;
    /// The index behind the last packet that was processed, with acquire ordering.
    fn hsa_queue_load_read_index_scacquire(queue: *const hsa_queue_t) -> u64;
    /// The index of the next packet to write.
    fn hsa_queue_load_write_index_relaxed(queue: *const hsa_queue_t) -> u64;
    /// Sets the index of the next packet to write, with release ordering. For one writer.
    fn hsa_queue_store_write_index_screlease(queue: *const hsa_queue_t, value: u64) -> ();
    /// Adds to the write index, with release ordering, and returns what it was: reserves slots among several writers.
    fn hsa_queue_add_write_index_screlease(queue: *const hsa_queue_t, value: u64) -> u64;
    /// Makes a signal. Without consumers (0 and null) every agent may wait for it.
    fn hsa_signal_create(
        initial_value: hsa_signal_value_t, num_consumers: u32, consumers: *const hsa_agent_t,
        signal: *mut hsa_signal_t
    ) -> hsa_status_t;
    /// Destroys a signal that no one waits for.
    fn hsa_signal_destroy(signal: hsa_signal_t) -> hsa_status_t;
    /// The signal's value, with acquire ordering.
    fn hsa_signal_load_scacquire(signal: hsa_signal_t) -> hsa_signal_value_t;
    /// Sets the value. On a queue's doorbell of an AIE agent, ROCR 7.2.4 processes all packets in this call.
    fn hsa_signal_store_relaxed(signal: hsa_signal_t, value: hsa_signal_value_t) -> ();
    /// The same, with release ordering.
    fn hsa_signal_store_screlease(signal: hsa_signal_t, value: hsa_signal_value_t) -> ();
    /// Waits until the value meets the condition, or about `timeout_hint` ticks of the system's clock, with acquire ordering. Returns
    /// the value seen last; the caller has to look whether it meets the condition.
    fn hsa_signal_wait_scacquire(
        signal: hsa_signal_t, condition: hsa_signal_condition_t, compare_value: hsa_signal_value_t,
        timeout_hint: u64, wait_state_hint: hsa_wait_state_t
    ) -> hsa_signal_value_t;

    /// Calls back for every memory pool of an agent, in this thread.
    fn hsa_amd_agent_iterate_memory_pools(
        agent: hsa_agent_t, callback: PoolCallback, data: *mut c_void
    ) -> hsa_status_t;
    /// Writes an attribute of a pool; `value` has room for the attribute's type.
    fn hsa_amd_memory_pool_get_info(
        memory_pool: hsa_amd_memory_pool_t, attribute: hsa_amd_memory_pool_info_t, value: *mut c_void
    ) -> hsa_status_t;
    /// Allocates `size` bytes; `flags` is [`HSA_AMD_MEMORY_POOL_STANDARD_FLAG`].
    fn hsa_amd_memory_pool_allocate(
        memory_pool: hsa_amd_memory_pool_t, size: usize, flags: u32, ptr: *mut *mut c_void
    ) -> hsa_status_t;
    /// Frees what `hsa_amd_memory_pool_allocate` gave.
    fn hsa_amd_memory_pool_free(ptr: *mut c_void) -> hsa_status_t;
}

impl HsaApi {
    /// The library behind the table, for functions it does not list.
    pub fn library(&self) -> &Library {
        &self.library
    }

    /// The runtime's own text for a status, for messages; without one, the status's name.
    pub fn describe(&self, status: hsa_status_t) -> String {
        let mut text: *const c_char = std::ptr::null();
        // SAFETY: `text` is a valid place for one pointer, and the function may be called at any time.
        let asked = unsafe { (self.hsa_status_string)(status, &raw mut text) };
        if asked != HSA_STATUS_SUCCESS || text.is_null() {
            return status.to_string();
        }
        // SAFETY: on success the runtime has written the address of a zero-terminated static text.
        let text = unsafe { CStr::from_ptr(text) };
        format!("{status}: {}", text.to_string_lossy())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_missing_function_is_named() {
        // SAFETY: the C library is loaded already, so nothing of it runs now.
        let library = unsafe { Library::new("libc.so.6") }.unwrap();
        // SAFETY: the C library has none of the functions, so none is called by a wrong type.
        let error = unsafe { HsaApi::load(library) }.unwrap_err();
        assert_eq!(error.names.len(), error.required);
        assert_eq!(error.required, FUNCTIONS.len());
        assert!(error.to_string().contains("hsa_init, hsa_shut_down"), "{error}");
    }
}
