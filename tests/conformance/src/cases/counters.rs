//! What work cost, counted exactly.

use crate::expect;
use crate::kernels::TestKernel;
use crate::rig::{Context, Rig, at, finished, nothing, part, record, signalling, whole};
use aie_hal::{Counters, DeviceError, Submission};
use std::sync::Arc;

fn idle(rig: &Rig) -> Counters {
    rig.queue.wait_idle(None).expect("an idle queue");
    rig.device.counters()
}

/// A device that did nothing has counted no work.
pub fn counters_start_at_zero(context: &Context) {
    let rig = context.fresh();
    expect::equal("counters of a new device", idle(&rig), Counters::default());
}

/// Each submission counts once, with and without commands.
pub fn submissions_are_counted(context: &Context) {
    let rig = context.fresh();
    let buffer = rig.zeroed(64);
    let list = record(|list| list.fill(&[1], whole(&buffer)));
    for round in 1..=5 {
        rig.run(&list);
        expect::equal("submissions", idle(&rig).submissions, round);
    }
    rig.queue.submit(Submission::default()).expect("a valid submission");
    expect::equal("submissions with an empty one", idle(&rig).submissions, 6);
}

pub fn failed_submissions_are_counted(context: &Context) {
    let rig = context.fresh();
    let (go, done) = (rig.semaphore(), rig.semaphore());
    let waits = vec![at(&go, 1)];
    rig.queue.submit(Submission { waits, ..signalling(&nothing(), vec![at(&done, 1)]) }).expect("a valid one");
    go.fail(Arc::new(DeviceError::Execution("given up".into())));
    let result = finished(&at(&done, 1));
    expect::holds("it fails", &result, result.is_err());
    expect::equal("submissions", idle(&rig).submissions, 1);
}

pub fn dispatches_and_host_calls_are_counted(context: &Context) {
    let rig = context.fresh();
    let (add, host) = (rig.load(&TestKernel::Add8(1)), TestKernel::Add8(1).kernel());
    let buffer = rig.zeroed(256);
    let list = record(|list| {
        for i in 0..3 {
            list.dispatch(&add, vec![part(&buffer, i * 64, 64), part(&buffer, i * 64, 64)])?;
        }
        list.barrier();
        for i in 0..2 {
            list.host_call(&host, vec![part(&buffer, i * 64, 64)], part(&buffer, i * 64, 64))?;
        }
        Ok(list)
    });
    for round in 1..=4 {
        rig.run(&list);
        let counters = idle(&rig);
        expect::equal("dispatches", counters.dispatches, 3 * round);
        expect::equal("host calls", counters.host_calls, 2 * round);
    }
}

/// Bytes of fills, updates and copies add up, to the byte.
pub fn copied_bytes_are_counted(context: &Context) {
    let rig = context.fresh();
    let (a, b) = (rig.zeroed(1000), rig.zeroed(1000));
    rig.run(&record(|list| list.fill(&[1], part(&a, 3, 101))));
    expect::equal("after a fill of 101", idle(&rig).bytes_copied, 101);
    rig.run(&record(|list| list.update(&[1; 77], part(&a, 3, 77))));
    expect::equal("after an update of 77", idle(&rig).bytes_copied, 178);
    rig.run(&record(|list| list.copy(part(&a, 0, 13), part(&b, 0, 13))));
    expect::equal("after a copy of 13", idle(&rig).bytes_copied, 191);
}

/// Bytes that the host flushes and invalidates add up on non-coherent memory.
pub fn maintenance_is_counted(context: &Context) {
    let rig = context.fresh();
    let buffer = rig.zeroed(10_000);
    let before = idle(&rig);
    buffer.flush(0..1000).expect("a flush inside");
    buffer.flush(5000..5500).expect("a flush inside");
    buffer.invalidate(100..400).expect("an invalidate inside");
    let after = idle(&rig);
    expect::at_least("bytes flushed", after.bytes_flushed - before.bytes_flushed, 1500);
    expect::at_most("bytes flushed", after.bytes_flushed - before.bytes_flushed, 3 * 4096);
    expect::at_least("bytes invalidated", after.bytes_invalidated - before.bytes_invalidated, 300);
    expect::at_most("bytes invalidated", after.bytes_invalidated - before.bytes_invalidated, 2 * 4096);
}

/// Allocations, bytes allocated now and the most at one time.
pub fn allocations_are_counted(context: &Context) {
    let rig = context.fresh();
    let before = idle(&rig);
    let first = rig.zeroed(1 << 20);
    let second = rig.zeroed(1 << 20);
    let both = idle(&rig);
    expect::equal("allocations", both.allocations - before.allocations, 2);
    expect::at_least("bytes now", both.allocated_bytes - before.allocated_bytes, 2 << 20);
    expect::at_least("most bytes", both.peak_bytes, both.allocated_bytes);
    drop((first, second));
    let after = idle(&rig);
    expect::equal("allocations", after.allocations, both.allocations);
    expect::equal("bytes now", after.allocated_bytes, before.allocated_bytes);
    expect::equal("most bytes", after.peak_bytes, both.peak_bytes);
}

/// Dispatches in a row are gathered: as few chains as their limits allow, and never more doorbells than chains.
pub fn dispatches_are_gathered_in_chains(context: &Context) {
    let rig = context.fresh();
    let add = rig.load(&TestKernel::Add8(1));
    let limits = rig.device.limits();
    let count = limits.commands_per_chain * 2;
    let buffer = rig.zeroed(64);
    let list = record(|list| {
        for _ in 0..count {
            list.dispatch(&add, vec![whole(&buffer), whole(&buffer)])?.barrier();
        }
        Ok(list)
    });
    rig.run(&list);
    let counters = idle(&rig);
    expect::at_least("chains", counters.chains, 2);
    // A command with two arguments takes less than 128 bytes of a chain's buffer.
    let most = count.div_ceil(limits.commands_per_chain.min(limits.chain_buffer_bytes / 128));
    expect::at_most("chains", counters.chains, most as u64);
    expect::at_least("doorbells", counters.doorbells, 1);
    expect::at_most("doorbells", counters.doorbells, counters.chains);
}

/// One PDI needs one context, created once and never switched away from.
pub fn one_pdi_needs_one_context(context: &Context) {
    let rig = context.fresh();
    // One of its own: devices of one NPU share contexts, and another case's PDI might be in one already.
    let add = rig.load(&TestKernel::Copy(0x0c0f_fee0));
    let buffer = rig.zeroed(64);
    let list = record(|list| list.dispatch(&add, vec![whole(&buffer), whole(&buffer)]));
    for _ in 0..10 {
        rig.run(&list);
    }
    let counters = idle(&rig);
    expect::equal("contexts created", counters.contexts_created, 1);
    expect::at_most("context switches", counters.context_switches, 1);
}

/// More PDIs than one context holds need a second one, and a replayed list creates no more.
pub fn replayed_lists_create_no_contexts(context: &Context) {
    let rig = context.fresh();
    let limits = rig.device.limits();
    let executables: Vec<_> =
        (0..limits.pdis_per_context as u32 + 4).map(|id| rig.load(&TestKernel::Copy(id))).collect();
    let buffer = rig.zeroed(64);
    let list = record(|list| {
        for executable in &executables {
            list.dispatch(executable, vec![whole(&buffer), whole(&buffer)])?.barrier();
        }
        Ok(list)
    });
    rig.run(&list);
    let first = idle(&rig).contexts_created;
    expect::at_least("contexts created", first, 2);
    for _ in 0..5 {
        rig.run(&list);
    }
    let created = idle(&rig).contexts_created;
    expect::equal("contexts created after five replays", created, first);
}

/// Counters never go down but for the bytes allocated now.
pub fn counters_only_grow(context: &Context) {
    let rig = context.fresh();
    let add = rig.load(&TestKernel::Add8(1));
    let mut before = idle(&rig);
    for size in [64, 4096, 65_536] {
        let buffer = rig.buffer(&vec![1; size]);
        rig.run(&record(|list| {
            list.fill(&[1], whole(&buffer))?.barrier().dispatch(&add, vec![whole(&buffer), whole(&buffer)])
        }));
        let after = idle(&rig);
        let all = |c: &Counters| {
            [
                c.submissions,
                c.dispatches,
                c.joined,
                c.stream_bytes,
                c.host_calls,
                c.chains,
                c.doorbells,
                c.contexts_created,
                c.context_switches,
                c.bytes_copied,
                c.bytes_flushed,
                c.bytes_invalidated,
                c.allocations,
                c.peak_bytes,
                c.virtual_ns,
                c.bundles,
            ]
        };
        let shrunk = all(&before).into_iter().zip(all(&after)).any(|(before, after)| after < before);
        expect::holds("no counter went down", &after, !shrunk);
        before = after;
    }
}
