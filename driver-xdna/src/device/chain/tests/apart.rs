//! On a device that has memory of its own and runs behind the caller: caches are maintained wherever they have to be, and the host
//! does nothing too early.

use crate::cpu_agent::rig::*;
use aie_hal::host_function::{HostFunction, from_fn};
use aie_hal::{Buffer, BufferRef, CommandListBuilder, Device, Executable};
use fastrand::Rng;
use std::sync::Arc;

/// Bytes of a buffer: several cache lines, and not whole ones.
const BYTES: usize = 200;
/// Bytes that a command touches.
const PART: usize = 60;
const BUFFERS: usize = 4;

/// A part of one of the buffers.
#[derive(Clone, Copy, PartialEq)]
struct Part {
    buffer: usize,
    offset: usize,
}

impl Part {
    /// At a multiple of a word, so that fills fit.
    fn any(random: &mut Rng) -> Self {
        Self { buffer: random.usize(..BUFFERS), offset: 4 * random.usize(..(BYTES - PART) / 4) }
    }

    fn of(self, buffers: &[Arc<dyn Buffer>]) -> BufferRef {
        BufferRef::direct(&buffers[self.buffer], self.offset, PART)
    }

    fn read(self, model: &[Vec<u8>]) -> Vec<u8> {
        model[self.buffer][self.offset..self.offset + PART].to_vec()
    }

    fn write(self, model: &mut [Vec<u8>], content: &[u8]) {
        model[self.buffer][self.offset..self.offset + PART].copy_from_slice(content);
    }

    fn overlaps(self, other: Self) -> bool {
        self.buffer == other.buffer && self.offset.abs_diff(other.offset) < PART
    }
}

struct Program<'a> {
    random: Rng,
    buffers: &'a [Arc<dyn Buffer>],
    adders: &'a [Arc<dyn Executable>],
    invert: Arc<dyn HostFunction>,
    /// What the buffers hold in the end.
    model: Vec<Vec<u8>>,
}

impl Program<'_> {
    /// Records a command and what it does to the model.
    fn step(&mut self, builder: &mut CommandListBuilder) {
        let (from, to) = (Part::any(&mut self.random), Part::any(&mut self.random));
        let (buffers, value) = (self.buffers, self.random.u8(..));
        let source = from.read(&self.model);
        let result: Vec<u8> = match self.random.usize(..10) {
            0 => {
                builder.fill(&[value], to.of(buffers)).unwrap();
                vec![value; PART]
            }
            1 => {
                let data = vec![value ^ 0x55; PART];
                builder.update(&data, to.of(buffers)).unwrap();
                data
            }
            2 if !from.overlaps(to) => {
                builder.copy(from.of(buffers), to.of(buffers)).unwrap();
                source
            }
            3 | 4 => {
                builder.host_call(&self.invert, vec![from.of(buffers)], to.of(buffers)).unwrap();
                source.iter().map(|byte| !byte).collect()
            }
            _ => {
                let number = self.random.usize(..self.adders.len());
                builder.dispatch(&self.adders[number], vec![from.of(buffers), to.of(buffers)]).unwrap();
                source.iter().map(|byte| byte.wrapping_add(number as u8 + 1)).collect()
            }
        };
        to.write(&mut self.model, &result);
        builder.barrier();
    }
}

#[test]
fn every_order_of_host_and_device_gives_the_bytes_of_one_after_the_other() {
    let mut most = 0;
    for seed in 1..=8 {
        let (rig, apart) = Rig::apart();
        let adders: Vec<_> = (1..=3).map(|number| rig.adder(number)).collect();
        let buffers: Vec<_> = (0..BUFFERS).map(|_| rig.buffer(BYTES)).collect();
        let invert = from_fn("test", 1, |inputs, output| {
            output.iter_mut().zip(inputs[0]).for_each(|(out, byte)| *out = !byte);
            Ok(())
        });
        let mut program = Program {
            random: Rng::with_seed(seed),
            buffers: &buffers,
            adders: &adders,
            invert,
            model: vec![vec![0; BYTES]; BUFFERS],
        };
        let queue = rig.queue();
        let semaphore = rig.semaphore();
        // Several submissions under way at once, and now and then the program itself looks and writes.
        for round in 1..=3 {
            let commands = list(|builder| (0..12).for_each(|_| program.step(builder)));
            submit(&queue, commands, &semaphore, 2 * round - 1);
            let commands = list(|builder| (0..6).for_each(|_| program.step(builder)));
            submit(&queue, commands, &semaphore, 2 * round);
            outcome(&semaphore, 2 * round).unwrap();
            for (index, buffer) in buffers.iter().enumerate() {
                buffer.invalidate(0..BYTES).unwrap();
                assert_eq!(bytes(buffer), program.model[index], "seed {seed}, round {round}, buffer {index}");
            }
            let written = vec![round as u8; PART];
            let part = Part::any(&mut program.random);
            buffers[part.buffer].write(part.offset, &written).unwrap();
            buffers[part.buffer].flush(part.offset..part.offset + PART).unwrap();
            part.write(&mut program.model, &written);
        }
        most = most.max(apart.most_ahead());
    }
    assert!(most > 1, "chains were started ahead");
}

/// What was not written by the NPU is not invalidated for a host call, and what was is so once.
#[test]
fn host_calls_cost_only_what_they_have_to() {
    let (rig, _apart) = Rig::apart();
    let adder = rig.adder(1);
    let (weights, activations, result) = (rig.buffer(4096), rig.buffer(64), rig.buffer(64));
    let sum = from_fn("test", 2, |inputs, output| {
        output.fill(inputs[0][0].wrapping_add(inputs[1][0]));
        Ok(())
    });
    let before = rig.device.counters();
    let commands = list(|builder| {
        builder.dispatch(&adder, vec![whole(&activations), whole(&result)]).unwrap().barrier();
        for _ in 0..3 {
            builder.host_call(&sum, vec![whole(&weights), whole(&result)], whole(&activations)).unwrap().barrier();
        }
    });
    run(&rig, commands).unwrap();
    let after = rig.device.counters();
    assert_eq!(after.bytes_invalidated - before.bytes_invalidated, 64);
    assert_eq!(after.bytes_flushed - before.bytes_flushed, 3 * 64);
}

/// A result's line that the host has written is evicted over it, unless it was written back before.
#[test]
fn lines_that_were_not_written_back_spoil_results() {
    for flushes in [false, true] {
        let (rig, _apart) = Rig::apart();
        let (adder, input, result) = (rig.adder(1), rig.buffer(128), rig.buffer(128));
        result.write(64, &[77]).unwrap();
        if flushes {
            result.flush(64..65).unwrap();
        }
        let commands = list(|builder| {
            builder.dispatch(&adder, vec![whole(&input), whole(&result)]).unwrap();
        });
        run(&rig, commands).unwrap();
        result.invalidate(0..128).unwrap();
        let mut expected = vec![1; 128];
        if !flushes {
            expected[64..].fill(0);
            expected[64] = 77;
        }
        assert_eq!(bytes(&result), expected, "flushes: {flushes}");
    }
}
