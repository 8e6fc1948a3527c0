//! The cases, one file per area.

pub(crate) mod allocation;
pub(crate) mod asynchronous;
pub(crate) mod bad_input;
pub(crate) mod coherence;
pub(crate) mod command_list;
pub(crate) mod counters;
pub(crate) mod cross_queue;
pub(crate) mod dispatch;
pub(crate) mod enumeration;
pub(crate) mod faults;
pub(crate) mod host_call;
pub(crate) mod import;
pub(crate) mod limits;
pub(crate) mod mapping;
pub(crate) mod semaphore;
pub(crate) mod several_devices;
pub(crate) mod submission;
pub(crate) mod uri;
