//! The symbols of a library.

/// Gives a library (`cdylib`) the symbols of an HSA runtime. The argument is an expression for an
/// `Arc<dyn aie_hal::KernelExecutor>`; it is evaluated when the runtime starts.
#[macro_export]
macro_rules! library {
    ($executor:expr) => {
        #[allow(missing_docs, clippy::missing_safety_doc)] // the functions of hsa.h and hsa_ext_amd.h
        mod hsa_symbols {
            use super::*;
            use $crate::entry;
            use $crate::hsa_sys::*;
            use ::std::ffi::{c_char, c_int, c_void};

            #[unsafe(no_mangle)]
            pub extern "C" fn hsa_init() -> hsa_status_t {
                entry::init(|| $executor)
            }

            $crate::forward! {
                safe shut_down() -> hsa_status_t: hsa_shut_down;
                unsafe configure(settings: *const c_char) -> (): hsa_stand_in_configure;
                unsafe report(buffer: *mut c_char, size: usize) -> usize: hsa_stand_in_report;
                unsafe status_string(status: hsa_status_t, text: *mut *const c_char) -> hsa_status_t: hsa_status_string;
                unsafe system_get_info(attribute: hsa_system_info_t, value: *mut c_void) -> hsa_status_t:
                    hsa_system_get_info;
                unsafe iterate_agents(callback: entry::AgentCallback, data: *mut c_void) -> hsa_status_t:
                    hsa_iterate_agents;
                unsafe agent_get_info(agent: hsa_agent_t, attribute: hsa_agent_info_t, value: *mut c_void) -> hsa_status_t:
                    hsa_agent_get_info;

                unsafe queue_create(
                    agent: hsa_agent_t, size: u32, queue_type: hsa_queue_type32_t,
                    callback: Option<unsafe extern "C" fn(hsa_status_t, *mut hsa_queue_t, *mut c_void)>,
                    data: *mut c_void, private_segment_size: u32, group_segment_size: u32, queue: *mut *mut hsa_queue_t
                ) -> hsa_status_t: hsa_queue_create;
                safe queue_destroy(queue: *mut hsa_queue_t) -> hsa_status_t: hsa_queue_destroy;
                safe queue_load_read_index(queue: *const hsa_queue_t) -> u64: hsa_queue_load_read_index_scacquire;
                safe queue_load_write_index(queue: *const hsa_queue_t) -> u64: hsa_queue_load_write_index_relaxed;
                safe queue_store_write_index(queue: *const hsa_queue_t, value: u64) -> ():
                    hsa_queue_store_write_index_screlease;
                safe queue_add_write_index(queue: *const hsa_queue_t, value: u64) -> u64:
                    hsa_queue_add_write_index_screlease;

                unsafe signal_create(
                    value: hsa_signal_value_t, consumers: u32, agents: *const hsa_agent_t, signal: *mut hsa_signal_t
                ) -> hsa_status_t: hsa_signal_create;
                safe signal_destroy(signal: hsa_signal_t) -> hsa_status_t: hsa_signal_destroy;
                safe signal_load(signal: hsa_signal_t) -> hsa_signal_value_t: hsa_signal_load_scacquire;
                safe signal_store(signal: hsa_signal_t, value: hsa_signal_value_t) -> ():
                    hsa_signal_store_relaxed, hsa_signal_store_screlease;
                safe signal_wait(
                    signal: hsa_signal_t, condition: hsa_signal_condition_t, compared: hsa_signal_value_t, ticks: u64,
                    state: hsa_wait_state_t
                ) -> hsa_signal_value_t: hsa_signal_wait_scacquire;

                unsafe agent_iterate_memory_pools(
                    agent: hsa_agent_t, callback: entry::PoolCallback, data: *mut c_void
                ) -> hsa_status_t: hsa_amd_agent_iterate_memory_pools;
                unsafe memory_pool_get_info(
                    pool: hsa_amd_memory_pool_t, attribute: hsa_amd_memory_pool_info_t, value: *mut c_void
                ) -> hsa_status_t: hsa_amd_memory_pool_get_info;
                unsafe memory_pool_allocate(
                    pool: hsa_amd_memory_pool_t, size: usize, flags: u32, address: *mut *mut c_void
                ) -> hsa_status_t: hsa_amd_memory_pool_allocate;
                safe memory_pool_free(address: *mut c_void) -> hsa_status_t: hsa_amd_memory_pool_free;
            }
        }
    };
}

/// Part of [`library!`]: C functions that call a function of [`entry`](crate::entry) each.
#[doc(hidden)]
#[macro_export]
macro_rules! forward {
    () => {};
    (safe $entry:ident $arguments:tt -> $result:ty: $($symbol:ident),+; $($rest:tt)*) => {
        $($crate::forward!(@safe $symbol $entry $arguments -> $result);)+
        $crate::forward!($($rest)*);
    };
    (unsafe $entry:ident $arguments:tt -> $result:ty: $($symbol:ident),+; $($rest:tt)*) => {
        $($crate::forward!(@unsafe $symbol $entry $arguments -> $result);)+
        $crate::forward!($($rest)*);
    };
    (@safe $symbol:ident $entry:ident ($($argument:ident: $type:ty),*) -> $result:ty) => {
        #[unsafe(no_mangle)]
        pub extern "C" fn $symbol($($argument: $type),*) -> $result {
            entry::$entry($($argument),*)
        }
    };
    (@unsafe $symbol:ident $entry:ident ($($argument:ident: $type:ty),*) -> $result:ty) => {
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $symbol($($argument: $type),*) -> $result {
            // SAFETY: The program promises what the C header asks for, which is what the function asks for.
            unsafe { entry::$entry($($argument),*) }
        }
    };
}
