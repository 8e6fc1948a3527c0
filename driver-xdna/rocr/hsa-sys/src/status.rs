//! Status codes. Almost every function returns one.

c_enums! {
    /// What a call has to report. Anything but [`HSA_STATUS_SUCCESS`] and [`HSA_STATUS_INFO_BREAK`] is a failure.
    #[must_use]
    hsa_status_t {
        /// Done.
        HSA_STATUS_SUCCESS = 0x0,
        /// A callback ended an iteration before the last element; not a failure.
        HSA_STATUS_INFO_BREAK = 0x1,
        /// A failure without a code of its own.
        HSA_STATUS_ERROR = 0x1000,
        /// An argument does not meet the function's demands.
        HSA_STATUS_ERROR_INVALID_ARGUMENT = 0x1001,
        /// A queue of this kind or size cannot be made.
        HSA_STATUS_ERROR_INVALID_QUEUE_CREATION = 0x1002,
        /// The memory cannot be allocated this way.
        HSA_STATUS_ERROR_INVALID_ALLOCATION = 0x1003,
        /// Not an agent, or not one for this call.
        HSA_STATUS_ERROR_INVALID_AGENT = 0x1004,
        /// Not a memory region.
        HSA_STATUS_ERROR_INVALID_REGION = 0x1005,
        /// Not a signal.
        HSA_STATUS_ERROR_INVALID_SIGNAL = 0x1006,
        /// Not a queue.
        HSA_STATUS_ERROR_INVALID_QUEUE = 0x1007,
        /// Memory or another resource ran out.
        HSA_STATUS_ERROR_OUT_OF_RESOURCES = 0x1008,
        /// A packet in a queue is malformed.
        HSA_STATUS_ERROR_INVALID_PACKET_FORMAT = 0x1009,
        /// Something could not be released.
        HSA_STATUS_ERROR_RESOURCE_FREE = 0x100A,
        /// `hsa_init` has not been called, or has been undone.
        HSA_STATUS_ERROR_NOT_INITIALIZED = 0x100B,
        /// `hsa_init` was called too often without `hsa_shut_down`.
        HSA_STATUS_ERROR_REFCOUNT_OVERFLOW = 0x100C,
        /// Arguments that are fine alone do not go together.
        HSA_STATUS_ERROR_INCOMPATIBLE_ARGUMENTS = 0x100D,
        /// An index is out of range.
        HSA_STATUS_ERROR_INVALID_INDEX = 0x100E,
        /// Not an instruction set.
        HSA_STATUS_ERROR_INVALID_ISA = 0x100F,
        /// No instruction set has this name.
        HSA_STATUS_ERROR_INVALID_ISA_NAME = 0x1017,
        /// Not a code object.
        HSA_STATUS_ERROR_INVALID_CODE_OBJECT = 0x1010,
        /// Not an executable.
        HSA_STATUS_ERROR_INVALID_EXECUTABLE = 0x1011,
        /// The executable is frozen and cannot change.
        HSA_STATUS_ERROR_FROZEN_EXECUTABLE = 0x1012,
        /// No symbol has this name.
        HSA_STATUS_ERROR_INVALID_SYMBOL_NAME = 0x1013,
        /// The variable has a definition already.
        HSA_STATUS_ERROR_VARIABLE_ALREADY_DEFINED = 0x1014,
        /// The variable has no definition.
        HSA_STATUS_ERROR_VARIABLE_UNDEFINED = 0x1015,
        /// An agent raised an exception.
        HSA_STATUS_ERROR_EXCEPTION = 0x1016,
        /// Not a symbol of a code object.
        HSA_STATUS_ERROR_INVALID_CODE_SYMBOL = 0x1018,
        /// Not a symbol of an executable.
        HSA_STATUS_ERROR_INVALID_EXECUTABLE_SYMBOL = 0x1019,
        /// Not a usable file descriptor.
        HSA_STATUS_ERROR_INVALID_FILE = 0x1020,
        /// Not a reader of code objects.
        HSA_STATUS_ERROR_INVALID_CODE_OBJECT_READER = 0x1021,
        /// Not a cache.
        HSA_STATUS_ERROR_INVALID_CACHE = 0x1022,
        /// Not a wavefront.
        HSA_STATUS_ERROR_INVALID_WAVEFRONT = 0x1023,
        /// Not a group of signals.
        HSA_STATUS_ERROR_INVALID_SIGNAL_GROUP = 0x1024,
        /// The runtime is not in a state for this call.
        HSA_STATUS_ERROR_INVALID_RUNTIME_STATE = 0x1025,
        /// The queue cannot continue.
        HSA_STATUS_ERROR_FATAL = 0x1026,
        /// Not a memory pool. This and the codes below are AMD's.
        HSA_STATUS_ERROR_INVALID_MEMORY_POOL = 40,
        /// An agent touched memory outside its aperture.
        HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION = 41,
        /// An agent met an instruction it does not know.
        HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION = 42,
        /// An agent touched memory it may not.
        HSA_STATUS_ERROR_MEMORY_FAULT = 43,
        /// Fewer compute units were granted than requested; the call took effect.
        HSA_STATUS_CU_MASK_REDUCED = 44,
        /// A kernel needs more registers than there are.
        HSA_STATUS_ERROR_OUT_OF_REGISTERS = 45,
        /// The resource is in use.
        HSA_STATUS_ERROR_RESOURCE_BUSY = 46,
        /// The runtime or the kernel driver cannot do it.
        HSA_STATUS_ERROR_NOT_SUPPORTED = 47,
    }
}

impl hsa_status_t {
    /// Whether the call did what was asked. A reduced mask of compute units counts as done.
    pub fn is_success(self) -> bool {
        matches!(self, HSA_STATUS_SUCCESS | HSA_STATUS_INFO_BREAK | HSA_STATUS_CU_MASK_REDUCED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_distinguished_from_the_rest() {
        assert!(HSA_STATUS_SUCCESS.is_success() && HSA_STATUS_INFO_BREAK.is_success());
        assert!(!HSA_STATUS_ERROR.is_success() && !hsa_status_t(0x7777).is_success());
    }
}
