//! Signals: 64-bit values shared between agents, to wait for and to ring doorbells with.

/// The value of a signal on a machine with 64-bit addresses.
pub type hsa_signal_value_t = i64;

c_handles! {
    /// A signal. Handle 0 is none. Loading, storing and waiting may be done from any thread at once; destroying may not
    /// be while another thread uses it.
    hsa_signal_t,
}

c_enums! {
    /// When a wait ends.
    hsa_signal_condition_t {
        /// The values are equal.
        HSA_SIGNAL_CONDITION_EQ = 0,
        /// The values differ.
        HSA_SIGNAL_CONDITION_NE = 1,
        /// The signal is less than the value compared with.
        HSA_SIGNAL_CONDITION_LT = 2,
        /// The signal is greater than or equal to the value compared with.
        HSA_SIGNAL_CONDITION_GTE = 3,
    }

    /// How to wait. A hint.
    hsa_wait_state_t {
        /// The wait may be long: sleep.
        HSA_WAIT_STATE_BLOCKED = 0,
    }
}
