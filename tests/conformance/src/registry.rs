//! The table of cases.

use crate::backend::Tag;
use crate::rig::Context;

/// One case.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// `area::case`.
    pub name: &'static str,
    /// What a mode has to have for the case to apply.
    pub needs: &'static [Tag],
    /// Runs it; panics when the driver does not do what the contract says.
    pub function: fn(&Context),
}

macro_rules! table {
    ($($area:ident { $($case:ident $(: [$($tag:ident),+])?,)* })*) => {
        &[$($(Case {
            name: concat!(stringify!($area), "::", stringify!($case)),
            needs: &[$($(Tag::$tag),+)?],
            function: crate::cases::$area::$case,
        },)*)*]
    };
}

/// All cases: areas with their cases and what these need. A case function that is not here is an unused function.
pub const CASES: &[Case] = table! {
    allocation {
        size_and_pool_are_as_asked,
        memory_is_zeroed_for_the_host,
        memory_is_zeroed_for_the_device,
        reused_memory_is_zeroed,
        alignment_is_as_asked,
        buffers_do_not_overlap,
        memory_report_follows,
        buffers_outlive_other_handles,
        threads_allocate_at_the_same_time,
        device_heap_is_a_pool_of_its_own: [HeapAllocation],
    }
    asynchronous {
        many_dispatches_are_awaited_together,
        devices_are_awaited_together: [SeveralDevices],
        waits_end_in_the_order_of_the_work,
        a_failed_wait_ends_no_other,
        a_cancelled_wait_cancels_no_work,
        a_wait_that_timed_out_can_be_waited_for_again,
        threads_await_the_same_point,
    }
    bad_input {
        signals_that_do_not_increase_are_refused,
        refused_submissions_touch_nothing,
    }
    coherence {
        flushed_writes_reach_the_device,
        invalidated_writes_reach_the_host,
        flush_then_invalidate_keeps_host_writes,
        missing_flush_gives_old_data: [NonCoherent],
        missing_invalidate_gives_old_data: [NonCoherent],
        flush_covers_its_range: [NonCoherent],
        invalidate_covers_its_range: [NonCoherent],
        invalidate_leaves_other_host_writes,
        flush_leaves_other_device_writes,
        coherent_memory_needs_no_flush: [Coherent],
        coherent_memory_needs_no_invalidate: [Coherent],
        commands_of_a_list_see_each_other,
        submissions_see_each_other,
    }
    command_list {
        fills_cover_their_range,
        fills_can_be_large,
        updates_cover_their_range,
        updates_have_a_largest_size,
        copies_cover_their_range,
        copies_inside_a_buffer,
        barriers_order_commands,
        unordered_commands_all_run,
        lists_can_be_long,
        lists_are_replayed,
        lists_are_replayed_at_the_same_time,
        slots_are_rebound,
        binding_offsets_add_up,
        direct_and_slot_references_mix,
        lists_hold_their_buffers,
    }
    counters {
        counters_start_at_zero,
        submissions_are_counted,
        failed_submissions_are_counted,
        dispatches_and_host_calls_are_counted,
        copied_bytes_are_counted,
        maintenance_is_counted: [NonCoherent],
        allocations_are_counted,
        dispatches_are_gathered_in_chains,
        one_pdi_needs_one_context,
        replayed_lists_create_no_contexts,
        counters_only_grow,
    }
    cross_queue {
        semaphores_order_queues,
        waiting_before_the_other_queue_signals,
        failures_cross_queues,
        a_waiting_queue_blocks_no_other,
        fan_out_and_join,
        all_queues_work_at_once,
        threads_with_queues_of_their_own,
    }
    dispatch {
        executables_know_their_artifact,
        one_dispatch,
        kernels_without_sources,
        arguments_arrive_in_order,
        as_many_arguments_as_allowed,
        arguments_may_repeat,
        arguments_may_be_parts,
        output_may_be_its_source,
        output_may_overlap_sources,
        unwritten_output_bytes_stay,
        dependent_dispatches_beyond_a_chain,
        independent_dispatches_beyond_a_chain,
        wide_dispatches_beyond_a_chain_buffer,
        more_pdis_than_a_context_in_one_list,
        more_pdis_than_a_context_across_lists,
        more_pdis_than_all_contexts,
        an_artifact_can_be_loaded_twice,
        dispatches_take_slots,
        commands_of_all_kinds_in_turn,
        failing_kernels_fail_the_submission: [SoftwareKernels],
        work_goes_on_after_a_failure: [SoftwareKernels],
        dependents_of_a_failure_fail: [SoftwareKernels],
        machine_code_computes: [MachineCode],
        machine_code_uses_many_buffers: [MachineCode],
        machine_code_goes_by_data: [MachineCode],
        unknown_designs_time_out: [SoftwareKernels],
        large_arguments,
    }
    enumeration {
        lists_a_usable_device,
        listing_is_repeatable,
        listed_uris_are_unique,
        listed_lines_are_complete,
        listed_uris_open,
        info_is_complete,
        info_uri_opens_the_same_device,
        opening_twice_gives_separate_counters,
        tags_match_the_device,
        limits_fit_the_generation,
    }
    faults {
        a_loss_fails_the_submission: [Faults],
        a_loss_is_sticky: [Faults],
        a_loss_fails_pending_work: [Faults],
        a_lost_device_can_be_opened_again: [Faults],
        memory_of_a_lost_device_is_readable: [Faults],
        faults_happen_when_planned: [Faults],
        a_timeout_passes: [Faults],
        an_allocation_failure_passes: [Faults],
        garbage_completes: [Faults],
        zeroes_complete: [Faults],
        stale_lines_give_old_data: [Faults, NonCoherent],
    }
    host_call {
        inputs_arrive_in_order,
        functions_without_inputs,
        unwritten_output_bytes_stay,
        output_may_overlap_inputs,
        functions_run_once_per_submission,
        failing_functions_fail_the_submission,
        panicking_functions_fail_the_submission,
        functions_may_use_the_device,
    }
    import {
        imported_memory_is_used_in_place: [HostImport],
        device_works_on_imported_memory: [HostImport],
        unwritten_bytes_of_an_import_stay: [HostImport],
        imports_hold_their_owner: [HostImport],
    }
    limits {
        queues_are_limited,
        the_device_heap_is_limited: [HeapAllocation],
        more_than_the_heap_is_refused: [HeapAllocation],
        a_full_heap_refuses_kernels: [HeapAllocation],
        dropped_kernels_give_their_heap_back: [HeapAllocation],
        the_data_pool_is_limited: [MemoryCap],
    }
    mapping {
        written_bytes_are_read,
        mapping_and_reads_agree,
        mapped_ranges_start_where_asked,
        mappings_do_not_move,
        empty_ranges_are_accepted,
        threads_write_disjoint_ranges,
    }
    semaphore {
        starts_at_its_initial_value,
        signals_have_to_increase,
        signals_wake_waiters,
        failure_wakes_waiters,
        failures_stay_on_their_semaphore,
        thousands_can_exist,
    }
    several_devices {
        devices_have_uris_of_their_own: [SeveralDevices],
        devices_work_side_by_side: [SeveralDevices],
        data_crosses_through_the_host: [SeveralDevices],
        devices_close_independently: [SeveralDevices],
    }
    submission {
        nothing_can_be_submitted,
        without_commands_it_orders_semaphores,
        empty_lists_signal,
        waiting_before_the_signal,
        waiting_for_reached_values,
        waiting_does_not_block_later_ones,
        ready_ones_start_in_order,
        semaphores_order_submissions,
        several_semaphores_are_signalled,
        signals_come_after_the_writes,
        submitting_does_not_wait,
        failed_waits_fail_the_signals,
        failures_travel_along_chains,
        idle_waits_for_the_work,
        idle_times_out,
        failed_work_leaves_the_queue_idle,
        flushing_is_always_allowed,
        dropping_a_queue_fails_pending_work,
        dropping_a_queue_waits_for_running_work,
        submissions_hold_what_they_use,
        threads_submit_at_the_same_time,
    }
    uri {
        slashes_are_optional,
        bare_scheme_opens,
        parameters_stay_in_the_device_uri,
        unknown_parameters_are_refused,
        malformed_parameters_are_refused,
        unknown_devices_are_refused,
    }
};
