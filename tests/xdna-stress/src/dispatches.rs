//! Very many dispatches on one logical queue: half of them in a submission each, half in lists of 1000.
//!
//! Each dispatch adds 1 to every byte of one cell of a buffer. No cell is added to more than 255 times, so at the end the
//! cells say how often each of them was dispatched to: exactly as often as requested.

use crate::footprint::Footprints;
use crate::target::{Target, check, reached, submit};
use aie_conformance::kernels::TestKernel;
use aie_conformance::rig::{at, record};
use aie_hal::{Binding, BindingTable, BufferRef};
use anyhow::{Context, Result, ensure};
use std::sync::Arc;

const CELL: usize = 64;
/// Dispatches of a list, each to a cell of its own.
const LIST: usize = 1000;
/// Submissions of single dispatches that may be pending.
const PENDING: usize = 48;
/// Each of this many single dispatches is waited for alone.
const ALONE: usize = 7;

pub fn run(target: &Target, dispatches: usize, footprints: &mut Footprints) -> Result<()> {
    ensure!(
        dispatches > 0 && dispatches.is_multiple_of(2 * LIST),
        "the dispatches have to be a multiple of {}",
        2 * LIST
    );
    let cells = dispatches.div_ceil(usize::from(u8::MAX)).max(LIST);
    let queue = target.device.create_queue()?;
    let add = target.load(&TestKernel::Add8(1))?;
    let buffer = target.buffer(&vec![0; cells * CELL])?;
    let single = record(|list| list.dispatch(&add, vec![BufferRef::slot(0, 0, CELL); 2]));
    let done = target.semaphore()?;
    let (mut point, mut sent) = (0, 0);
    let mut asked = vec![0u8; cells];
    // In turn, so that memory is looked at with both behind.
    for turn in 0..dispatches / (2 * LIST) {
        for number in 0..LIST {
            let cell = sent % cells;
            let bindings = BindingTable {
                bindings: vec![Binding { buffer: Arc::clone(&buffer), offset: cell * CELL, length: CELL }],
            };
            point += 1;
            submit(&queue, &single, bindings, vec![], vec![at(&done, point)])?;
            if number % ALONE == 0 {
                reached(&done, point)?;
            } else if point > PENDING as u64 {
                reached(&done, point - PENDING as u64)?;
            }
            asked[cell] += 1;
            sent += 1;
        }
        let list = record(|list| {
            for number in sent..sent + LIST {
                list.dispatch(&add, vec![BufferRef::direct(&buffer, number % cells * CELL, CELL); 2])?;
            }
            Ok(list)
        });
        for _ in 0..LIST {
            asked[sent % cells] += 1;
            sent += 1;
        }
        point += 1;
        submit(&queue, &list, BindingTable::default(), vec![], vec![at(&done, point)])?;
        reached(&done, point)?;
        check(&format!("after {sent} dispatches"), &buffer, |byte| asked[byte / CELL])?;
        footprints.step(turn + 1, dispatches / (2 * LIST))?;
    }
    let ran = target.device.counters().dispatches;
    ensure!(sent == dispatches && ran == dispatches as u64, "{dispatches} dispatches were requested, {ran} counted");
    queue.wait_idle(None).context("the queue")
}
