//! Contexts.

use super::{Script, script, with_setup};
use crate::names::NOWHERE;
use crate::probe::Probe;
use crate::setup::{Context, Setup, address, list};
use amdxdna_sys::limits::PAGE;
use amdxdna_sys::*;

pub(super) const SCRIPTS: &[Script] = &[
    script("context: tiles", "numbers of tiles", tiles),
    script("context: fields", "CREATE_HWCTX with wrong or unusual fields", fields),
    with_setup("context: destroy", "DESTROY_HWCTX once, twice, of nothing", destroy),
    script("context: exhaustion", "contexts until there are no more, and one again", exhaustion),
    script("context: exhaustion by another file", "contexts of two files", exhaustion_by_two),
    script("context: numbers", "which handles are given again", numbers),
    with_setup("context: configure", "CONFIG_HWCTX with wrong lists", configure),
    with_setup("context: configure twice", "a second list, and one after a wrong list", configure_twice),
    with_setup("context: configure fields", "CONFIG_HWCTX with wrong fields", configure_fields),
    with_setup("context: wrong PDIs", "BOs that are no PDI", wrong_pdis),
    with_setup("context: many PDIs", "as many PDIs as fit, and more", many_pdis),
    with_setup("context: debug buffers", "attached, detached, synchronised", debug_buffers),
    with_setup("context: without PDIs", "a command of a context that has none", without_pdis),
];

fn tiles(p: &mut Probe) {
    let Some(_heap) = p.heap() else { return };
    let (column, columns) = p.array();
    for tiles in [0, 1, column - 1, column, column + 1, 2 * column, 3 * column, 5 * column] {
        let context = p.context(tiles);
        p.destroy(context);
    }
    let all = column * columns;
    for tiles in [all - column, all, all + 1, all + column, 1000, u32::MAX] {
        p.with("columns", "about all");
        let context = p.context(tiles);
        p.destroy(context);
    }
}

fn fields(p: &mut Probe) {
    let Some(_heap) = p.heap() else { return };
    let num_tiles = p.array().0;
    let qos = amdxdna_qos_info::default();
    let right = amdxdna_drm_create_hwctx { qos_p: address(&qos), max_opc: 0x800, num_tiles, ..Default::default() };
    let high = amdxdna_qos_info { gops: 1, fps: 1, priority: 0x180, ..Default::default() };
    let most = amdxdna_qos_info {
        gops: u32::MAX,
        fps: u32::MAX,
        dma_bandwidth: u32::MAX,
        latency: u32::MAX,
        frame_exec_time: u32::MAX,
        priority: u32::MAX,
    };
    for mut create in [
        right,
        amdxdna_drm_create_hwctx { qos_p: 0, ..right },
        amdxdna_drm_create_hwctx { qos_p: NOWHERE, ..right },
        amdxdna_drm_create_hwctx { qos_p: address(&high), ..right },
        amdxdna_drm_create_hwctx { qos_p: address(&most), ..right },
        amdxdna_drm_create_hwctx { ext: 1, ..right },
        amdxdna_drm_create_hwctx { ext_flags: 1, ..right },
        amdxdna_drm_create_hwctx { max_opc: 0, ..right },
        amdxdna_drm_create_hwctx { max_opc: u32::MAX, ..right },
        amdxdna_drm_create_hwctx { umq_bo: 99, ..right },
        amdxdna_drm_create_hwctx { log_buf_bo: 99, ..right },
        amdxdna_drm_create_hwctx { mem_size: 4096, ..right },
        amdxdna_drm_create_hwctx { handle: 9, syncobj_handle: 9, umq_doorbell: 9, ..right },
    ] {
        if p.call(&mut create).is_ok() {
            p.destroy(Context { handle: create.handle, timeline: create.syncobj_handle });
        }
    }
}

fn destroy(p: &mut Probe, setup: Setup) {
    for handle in [0, 99, 255, 256, u32::MAX] {
        p.destroy(Context { handle, timeline: 0 });
    }
    let _ = p.call(&mut amdxdna_drm_destroy_hwctx { handle: setup.context.handle, pad: 1 });
    p.destroy(setup.context);
    p.destroy(setup.context);
    p.configure(setup.context, &[setup.pdi]);
    let Some(command) = p.command(setup.command()) else { return };
    let _ = p.execute(setup.context, command.handle, &[]);
    // The timeline is the caller's.
    p.destroy_syncobj(setup.context.timeline);
    p.destroy_syncobj(setup.context.timeline);
}

/// Makes contexts of one column until the kernel rejects one.
fn fill(p: &mut Probe) -> Vec<Context> {
    let tiles = p.array().0;
    let made: Vec<Context> = p.quietly(|p| {
        let context = |_| Some(p.context(tiles)).filter(|context| context.handle != 0);
        (0..300).map_while(context).collect()
    });
    p.note("contexts", made.len());
    made
}

fn exhaustion(p: &mut Probe) {
    let Some(_heap) = p.heap() else { return };
    let made = fill(p);
    let tiles = p.array().0;
    p.context(tiles);
    if let [first, .., last] = made[..] {
        p.destroy(first);
        let again = p.context(tiles);
        p.context(tiles);
        p.destroy(last);
        p.destroy(again);
    }
    p.quietly(|p| made.iter().for_each(|context| p.destroy(*context)));
    let context = p.context(tiles);
    p.destroy(context);
}

fn exhaustion_by_two(p: &mut Probe) {
    let Some(_heap) = p.heap() else { return };
    let made = fill(p);
    let Some(mut other) = p.another() else { return };
    let heap = p.on(&mut other, |p| {
        let heap = p.heap();
        p.context(4);
        heap
    });
    if let Some(context) = made.first() {
        p.destroy(*context);
    }
    p.on(&mut other, |p| p.context(4));
    drop(heap);
    // What the other file has goes away with it.
    drop(other);
    p.context(4);
}

fn numbers(p: &mut Probe) {
    let Some(_heap) = p.heap() else { return };
    let first = p.context(4);
    let second = p.context(4);
    p.note("numbers", vec![first.handle, second.handle]);
    p.destroy(first);
    let third = p.context(4);
    p.note("number after the first was destroyed", third.handle);
    p.note("timelines", vec![first.timeline, second.timeline, third.timeline]);
}

fn configure(p: &mut Probe, setup: Setup) {
    let one = amdxdna_cu_config { cu_bo: 1, ..Default::default() };
    let entry = amdxdna_cu_config { cu_bo: setup.pdi, ..Default::default() };
    let bytes = size_of::<amdxdna_cu_config>() as u32;
    let cases: [(&str, Vec<amdxdna_cu_config>, u32); 9] = [
        ("no PDI", vec![Default::default(), entry], 2 * bytes),
        ("two, one of which is missing", vec![amdxdna_cu_config { cu_bo: 2, ..one }, entry], 2 * bytes),
        ("65535", vec![amdxdna_cu_config { cu_bo: 0xffff, ..one }, entry], 2 * bytes),
        ("padding in the head", vec![amdxdna_cu_config { cu_func: 1, ..one }, entry], 2 * bytes),
        ("the head only", vec![one], bytes),
        ("half of the head", vec![one], bytes / 2),
        ("nothing", vec![one, entry], 0),
        ("padding in an entry", vec![one, amdxdna_cu_config { pad: [1; 3], ..entry }], 2 * bytes),
        ("a function", vec![one, amdxdna_cu_config { cu_func: 5, ..entry }], 2 * bytes),
    ];
    for (what, config, bytes) in cases {
        p.in_context(&[], |p, context| p.with("what", what).configure_with(context, &config, bytes));
    }
}

fn configure_twice(p: &mut Probe, setup: Setup) {
    p.configure(setup.context, &[setup.pdi]);
    let context = p.context(4);
    p.configure(context, &[0]);
    p.configure(context, &[99]);
    p.configure(context, &[setup.pdi]);
    p.configure(context, &[setup.pdi, setup.pdi]);
    p.destroy(context);
}

fn configure_fields(p: &mut Probe, setup: Setup) {
    let one = amdxdna_cu_config { cu_bo: 1, ..Default::default() };
    let entry = amdxdna_cu_config { cu_bo: setup.pdi, ..Default::default() };
    // As long as the longest list.
    let mut config = vec![one, entry];
    config.resize(2 * PAGE / size_of::<amdxdna_cu_config>(), Default::default());
    let context = p.context(4);
    let right = amdxdna_drm_config_hwctx {
        handle: context.handle,
        param_type: DRM_AMDXDNA_HWCTX_CONFIG_CU,
        param_val: list(&config),
        param_val_size: 16,
        pad: 0,
    };
    p.call_each([
        amdxdna_drm_config_hwctx { handle: 0, ..right },
        amdxdna_drm_config_hwctx { handle: 99, ..right },
        amdxdna_drm_config_hwctx { pad: 1, ..right },
        amdxdna_drm_config_hwctx { param_type: 3, ..right },
        amdxdna_drm_config_hwctx { param_type: u32::MAX, ..right },
        amdxdna_drm_config_hwctx { param_val: NOWHERE, ..right },
        amdxdna_drm_config_hwctx { param_val: 0, ..right },
        amdxdna_drm_config_hwctx { param_val_size: PAGE as u32 + 1, ..right },
        amdxdna_drm_config_hwctx { param_val_size: u32::MAX, ..right },
        amdxdna_drm_config_hwctx { param_val_size: PAGE as u32, ..right },
    ]);
}

fn wrong_pdis(p: &mut Probe, setup: Setup) {
    let shared = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let command = p.create_bo(AMDXDNA_BO_CMD, PAGE as u64);
    let (zeros, _) = p.part(&setup.heap, &[0; 64]);
    let (noise, _) = p.part(&setup.heap, &[0xa5; 64]);
    for (what, pdi) in [
        ("0", 0),
        ("99", 99),
        ("shared memory", shared),
        ("a command", command),
        ("the heap", setup.heap.handle),
        ("zeros", zeros),
        ("noise", noise),
    ] {
        p.in_context(&[], |p, context| p.with("what", what).configure(context, &[pdi]));
    }
    // A PDI that is closed afterwards.
    let context = p.context(4);
    p.configure(context, &[setup.pdi]);
    p.close(setup.pdi);
    if let Some(command) = p.command(setup.command()) {
        p.run(context, &command, &[]);
    }
    p.destroy(context);
}

fn many_pdis(p: &mut Probe, setup: Setup) {
    for count in [2, 31, 32, 33, 511] {
        p.in_context(&[], |p, context| p.with("PDIs", count).configure(context, &vec![setup.pdi; count]));
    }
}

fn debug_buffers(p: &mut Probe, setup: Setup) {
    let shared = p.create_bo(AMDXDNA_BO_SHMEM, PAGE as u64);
    let (part, _) = p.part(&setup.heap, &[0; 4096]);
    let (attach, detach) = (DRM_AMDXDNA_HWCTX_ASSIGN_DBG_BUF, DRM_AMDXDNA_HWCTX_REMOVE_DBG_BUF);
    let config = |p: &mut Probe, param_type, buffer: u32| {
        let (handle, param_val) = (setup.context.handle, buffer.into());
        let _ = p.call(&mut amdxdna_drm_config_hwctx { handle, param_type, param_val, param_val_size: 0, pad: 0 });
    };
    for (what, buffer) in [(detach, part), (attach, 0), (attach, 99), (attach, shared), (attach, part), (attach, part)]
    {
        config(p, what, buffer);
    }
    p.sync(part, SYNC_DIRECT_FROM_DEVICE, 0, PAGE as u64);
    config(p, detach, part);
    config(p, detach, part);
}

fn without_pdis(p: &mut Probe, setup: Setup) {
    let context = p.context(4);
    if let Some(command) = p.command(setup.command()) {
        p.run(context, &command, &[]);
        p.configure(context, &[setup.pdi]);
        p.run(context, &command, &[]);
    }
    p.destroy(context);
}
