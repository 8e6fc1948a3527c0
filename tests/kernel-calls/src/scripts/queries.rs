//! GET_INFO and GET_ARRAY.

use super::{Script, script, with_setup};
use crate::names::NOWHERE;
use crate::probe::Probe;
use crate::setup::{Setup, room};
use amdxdna_sys::*;
use bytemuck::{Pod, bytes_of};

pub(super) const SCRIPTS: &[Script] = &[
    script("info: answers", "every question, with room enough", answers),
    script("info: room", "every question, with too little room, none, and nowhere", little_room),
    script("info: columns", "the state of the columns", columns),
    with_setup("info: contexts", "the list of contexts", contexts),
    with_setup("array: contexts", "the list of contexts, for elements of many sizes", array_contexts),
    script("array: other lists", "errors, memory, and what there is not", array_others),
    script("array: fields", "GET_ARRAY with wrong fields", array_fields),
];

const QUESTIONS: [u32; 13] = [
    DRM_AMDXDNA_QUERY_AIE_METADATA,
    DRM_AMDXDNA_QUERY_AIE_VERSION,
    DRM_AMDXDNA_QUERY_CLOCK_METADATA,
    DRM_AMDXDNA_QUERY_SENSORS,
    DRM_AMDXDNA_QUERY_HW_CONTEXTS,
    DRM_AMDXDNA_QUERY_FIRMWARE_VERSION,
    DRM_AMDXDNA_GET_POWER_MODE,
    DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE,
    DRM_AMDXDNA_QUERY_RESOURCE_INFO,
    DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE,
    6,
    7,
    99,
];

/// Asks, with a buffer of this structure.
fn ask<T: Pod>(p: &mut Probe, param: u32) -> T {
    let mut value = [T::zeroed()];
    if p.get_info(param, &mut value).is_ok() {
        p.show("answer", &value[0]);
    }
    value[0]
}

fn answers(p: &mut Probe) {
    let shape: amdxdna_drm_query_aie_metadata = ask(p, DRM_AMDXDNA_QUERY_AIE_METADATA);
    for (name, tiles) in [("core", shape.core), ("mem", shape.mem), ("shim", shape.shim)] {
        p.show(name, &tiles);
    }
    ask::<amdxdna_drm_query_aie_version>(p, DRM_AMDXDNA_QUERY_AIE_VERSION);
    let clocks: amdxdna_drm_query_clock_metadata = ask(p, DRM_AMDXDNA_QUERY_CLOCK_METADATA);
    p.show("first clock", &clocks.mp_npu_clock);
    p.show("second clock", &clocks.h_clock);
    ask::<amdxdna_drm_query_sensor>(p, DRM_AMDXDNA_QUERY_SENSORS);
    ask::<amdxdna_drm_query_hwctx>(p, DRM_AMDXDNA_QUERY_HW_CONTEXTS);
    ask::<amdxdna_drm_query_firmware_version>(p, DRM_AMDXDNA_QUERY_FIRMWARE_VERSION);
    ask::<amdxdna_drm_get_power_mode>(p, DRM_AMDXDNA_GET_POWER_MODE);
    ask::<amdxdna_drm_attribute_state>(p, DRM_AMDXDNA_GET_FORCE_PREEMPT_STATE);
    ask::<amdxdna_drm_get_resource_info>(p, DRM_AMDXDNA_QUERY_RESOURCE_INFO);
    ask::<amdxdna_drm_attribute_state>(p, DRM_AMDXDNA_GET_FRAME_BOUNDARY_PREEMPT_STATE);
}

fn little_room(p: &mut Probe) {
    for param in QUESTIONS {
        for (buffer_size, nowhere) in [(0, false), (4, false), (4096, false), (4096, true)] {
            let mut buffer = vec![0_u64; 512];
            let address = room(buffer.as_mut_slice());
            let address = if nowhere { NOWHERE } else { address };
            let _ = p.call(&mut amdxdna_drm_get_info { param, buffer_size, buffer: address });
            // How much of the answer is zeros is the answer's matter; whether anything came is not.
            p.note("something was written", buffer.iter().any(|word| *word != 0));
        }
    }
}

fn columns(p: &mut Probe) {
    let mut states = vec![0_u64; 32 << 10];
    for (bytes, nowhere) in [(256 << 10, false), (16, false), (0, false), (256 << 10, true)] {
        let address = room(states.as_mut_slice());
        let buffer = if nowhere { NOWHERE } else { address };
        let mut status = [amdxdna_drm_query_aie_status { buffer, buffer_size: bytes, cols_filled: 0 }];
        let _ = p.get_info(DRM_AMDXDNA_QUERY_AIE_STATUS, &mut status);
        p.note("columns", status[0].cols_filled);
    }
}

/// A second context, and a command that the first has run.
fn two_contexts(p: &mut Probe, setup: &Setup) {
    let command = p.command(setup.command());
    p.prepare("two contexts, a command", |p| {
        p.context(4);
        if let Some(command) = &command {
            p.run(setup.context, command, &[]);
        }
    });
}

fn contexts(p: &mut Probe, setup: Setup) {
    two_contexts(p, &setup);
    for count in [4, 2, 1, 0] {
        let mut entries = vec![amdxdna_drm_query_hwctx::default(); count];
        let _ = p.get_info(DRM_AMDXDNA_QUERY_HW_CONTEXTS, &mut entries);
        for (index, entry) in entries.iter().enumerate() {
            p.show(&format!("entry {index}"), entry);
        }
    }
}

fn array_contexts(p: &mut Probe, setup: Setup) {
    two_contexts(p, &setup);
    let whole = size_of::<amdxdna_drm_hwctx_entry>();
    for (element, count) in
        [(whole, 8), (whole, 2), (whole, 1), (32, 8), (8, 8), (4096, 4), (4097, 1), (whole, 1024), (whole, 1025)]
    {
        let mut answer = vec![0_u64; (element * count).div_ceil(8)];
        let _ = p.call(&mut amdxdna_drm_get_array {
            param: DRM_AMDXDNA_HW_CONTEXT_ALL,
            element_size: element as u32,
            num_element: count as u32,
            pad: 0,
            buffer: room(answer.as_mut_slice()),
        });
        if element == whole && count == 8 {
            let entries: &[amdxdna_drm_hwctx_entry] = bytemuck::cast_slice(&answer);
            entries[..2].iter().for_each(|entry| p.show("context", entry));
        }
    }
    // As many as there is room for, one behind the other.
    let mut answer = vec![0_u64; 2 * whole / 8];
    let buffer = room(answer.as_mut_slice());
    let mut short = amdxdna_drm_get_array { element_size: 32, num_element: 8, buffer, ..Default::default() };
    let _ = p.call(&mut short);
    p.note("words of the second entry", answer[4..8].iter().any(|word| *word != 0));
}

fn array_others(p: &mut Probe) {
    let _heap = p.heap();
    p.quietly(|p| p.create_bo(AMDXDNA_BO_SHMEM, 4096));
    let own = i64::from(std::process::id());
    for count in [1, 2] {
        array(p, DRM_AMDXDNA_HW_LAST_ASYNC_ERR, amdxdna_async_error::default(), count);
    }
    for (what, pid) in [("own", own), ("none", 0), ("nobody", i64::MAX), ("negative", -1)] {
        p.with("process", what);
        array(p, DRM_AMDXDNA_BO_USAGE, amdxdna_drm_bo_usage { pid, ..Default::default() }, 1);
    }
    array(p, DRM_AMDXDNA_BO_USAGE, amdxdna_drm_bo_usage { pid: own, ..Default::default() }, 2);
    for param in [1, 3, 4, 5, 7, 99] {
        array(p, param, amdxdna_async_error::default(), 1);
    }
}

/// Asks for a list, in which the first structure is what the question is about.
fn array<T: Pod>(p: &mut Probe, param: u32, first: T, count: usize) {
    let mut values = vec![first; count];
    let (element_size, num_element) = (size_of::<T>() as u32, count as u32);
    let buffer = room(values.as_mut_slice());
    let _ = p.call(&mut amdxdna_drm_get_array { param, element_size, num_element, pad: 0, buffer });
    if bytes_of(&values[0]) != bytes_of(&first) {
        p.show("answer", &values[0]);
    }
}

fn array_fields(p: &mut Probe) {
    let mut answer = vec![0_u64; 512];
    let right = amdxdna_drm_get_array {
        param: DRM_AMDXDNA_HW_CONTEXT_ALL,
        element_size: size_of::<amdxdna_drm_hwctx_entry>() as u32,
        num_element: 4,
        pad: 0,
        buffer: room(answer.as_mut_slice()),
    };
    for param in [DRM_AMDXDNA_HW_CONTEXT_ALL, DRM_AMDXDNA_HW_LAST_ASYNC_ERR, DRM_AMDXDNA_BO_USAGE] {
        p.call_each([
            amdxdna_drm_get_array { param, pad: 1, ..right },
            amdxdna_drm_get_array { param, num_element: 0, ..right },
            amdxdna_drm_get_array { param, element_size: 0, ..right },
            amdxdna_drm_get_array { param, element_size: u32::MAX, ..right },
            amdxdna_drm_get_array { param, buffer: NOWHERE, ..right },
            amdxdna_drm_get_array { param, buffer: NOWHERE, num_element: 1, ..right },
        ]);
    }
}
