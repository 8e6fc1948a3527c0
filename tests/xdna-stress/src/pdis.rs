//! Graphs with more distinct PDIs than a context holds, again and again.
//!
//! Kernel `i` adds `i` to every byte, so each has a PDI of its own. There are two graphs of the same kernels. In the
//! *dependent* one each dispatch reads what the one before wrote, so the order is given. In the *independent* one all read the
//! same source, in an order that has each dispatch in another context than the one before: the driver is free to put those of
//! one context together. Each dispatch has a target of its own and the source changes with each repetition, so that a
//! dispatch which did not run leaves what the repetition before wrote.

use crate::footprint::Footprints;
use crate::target::{Target, check, reached, submit};
use aie_conformance::kernels::TestKernel;
use aie_conformance::rig::{at, record, store, whole};
use aie_hal::{BindingTable, Buffer, BufferRef};
use anyhow::{Result, ensure};
use std::sync::Arc;

const BYTES: usize = 64;

/// Runs the load. Returns the contexts made after the first repetition.
pub fn run(target: &Target, pdis: u8, repetitions: u32, footprints: &mut Footprints) -> Result<u64> {
    let count = usize::from(pdis);
    let limits = target.device.limits();
    let contexts = count.div_ceil(limits.pdis_per_context) as u64;
    let queue = target.device.create_queue()?;
    let kernels = (1..=pdis).map(|k| target.load(&TestKernel::Add8(k))).collect::<Result<Vec<_>>>()?;
    let source = target.buffer(&[0; BYTES])?;
    let targets = |_| target.buffer(&vec![0; count * BYTES]);
    let [chained, spread]: [Arc<dyn Buffer>; 2] = [targets(0)?, targets(1)?];
    let part = |buffer, index| BufferRef::direct(buffer, index * BYTES, BYTES);
    let dependent = record(|list| {
        for (index, kernel) in kernels.iter().enumerate() {
            let from = if index == 0 { whole(&source) } else { part(&chained, index - 1) };
            list.dispatch(kernel, vec![from, part(&chained, index)])?;
            list.barrier();
        }
        Ok(list)
    });
    let independent = record(|list| {
        let stride = limits.pdis_per_context;
        for index in (0..stride).flat_map(|first| (first..count).step_by(stride)) {
            list.dispatch(&kernels[index], vec![whole(&source), part(&spread, index)])?;
        }
        Ok(list)
    });
    let done = target.semaphore()?;
    let mut first = 0;
    for repetition in 0..repetitions {
        let seed = |byte: usize| (byte as u8).wrapping_mul(31).wrapping_add(repetition as u8).wrapping_mul(7);
        store(&source, 0, &std::array::from_fn::<u8, BYTES, _>(seed));
        let before = target.device.counters();
        for (number, list) in [(1, &dependent), (2, &independent)] {
            let point = u64::from(repetition) * 2 + number;
            submit(&queue, list, BindingTable::default(), vec![], vec![at(&done, point)])?;
        }
        reached(&done, u64::from(repetition) * 2 + 2)?;
        check(&format!("dependent graph, repetition {repetition}"), &chained, |byte| {
            // The sum of 1 to k.
            let k = byte / BYTES + 1;
            seed(byte % BYTES).wrapping_add((k * (k + 1) / 2) as u8)
        })?;
        check(&format!("independent graph, repetition {repetition}"), &spread, |byte| {
            seed(byte % BYTES).wrapping_add((byte / BYTES + 1) as u8)
        })?;
        let after = target.device.counters();
        let switches = after.context_switches - before.context_switches;
        ensure!(
            switches <= 2 * contexts || contexts > limits.contexts as u64,
            "repetition {repetition} switched contexts {switches} times, for two graphs whose PDIs fill {contexts}"
        );
        let dispatches = after.dispatches - before.dispatches;
        ensure!(
            dispatches == 2 * count as u64,
            "repetition {repetition} counts {dispatches} dispatches of {}",
            2 * count
        );
        if repetition == 0 {
            first = after.contexts_created;
        }
        footprints.step(repetition as usize + 1, repetitions as usize)?;
    }
    let later = target.device.counters().contexts_created - first;
    if contexts <= limits.contexts as u64 {
        ensure!(first == contexts, "{first} contexts were made for {count} PDIs, {contexts} hold them");
        ensure!(later == 0, "{later} contexts were made after the first repetition, though {contexts} hold all PDIs");
    }
    Ok(later)
}
