//! Kernels on the array: arguments, overlaps, long chains, many PDIs, failures.

use crate::compiled;
use crate::expect::{self, expect_match};
use crate::kernels::{self, FAILURE, TestKernel};
use crate::rig::{Context, Rig, at, contents, part, pattern, reached, record, signalling, table, whole};
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::pdi;
use aie_hal::{Binding, BindingTable, Buffer, BufferRef, DeviceError, Executable, KernelArtifact, Submission};
use std::sync::Arc;

fn plus(bytes: &[u8], k: usize) -> Vec<u8> {
    bytes.iter().map(|byte| byte.wrapping_add(k as u8)).collect()
}

/// A loaded executable says what was loaded.
pub fn executables_know_their_artifact(context: &Context) {
    let rig = context.shared();
    let artifact = TestKernel::Mix(3).artifact(rig.device.arch());
    let executable = rig.device.load_executable(&artifact).expect("a valid artifact");
    expect::equal("name", executable.artifact().name(), "mix_3");
    expect::equal("arguments", executable.artifact().argument_count(), 4);
    expect::equal("digest", executable.artifact().digest(), artifact.digest());
    expect::equal("generation", executable.artifact().arch(), &rig.device.arch().name);
}

/// One kernel, one source, one output, several sizes.
pub fn one_dispatch(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(7));
    for size in [4, 64, 4096, 4100, 1 << 20] {
        let (source, target) = (rig.buffer(&pattern(size, 1)), rig.zeroed(size));
        rig.run(&record(|list| list.dispatch(&add, vec![whole(&source), whole(&target)])));
        expect::bytes("output", &contents(&target), &plus(&pattern(size, 1), 7));
        expect::bytes("source", &contents(&source), &pattern(size, 1));
    }
}

/// A kernel without sources has one argument, the output.
pub fn kernels_without_sources(context: &Context) {
    let rig = context.shared();
    let constant = rig.load(&TestKernel::Constant(42));
    let target = rig.zeroed(256);
    rig.run(&record(|list| list.dispatch(&constant, vec![whole(&target)])));
    expect::bytes("output", &contents(&target), &[42; 256]);
}

/// Arguments arrive in their order, of different lengths.
pub fn arguments_arrive_in_order(context: &Context) {
    let rig = context.shared();
    let concat = rig.load(&TestKernel::Concat);
    let (a, b, target) = (rig.buffer(&pattern(100, 1)), rig.buffer(&pattern(60, 2)), rig.zeroed(160));
    rig.run(&record(|list| list.dispatch(&concat, vec![whole(&a), whole(&b), whole(&target)])));
    expect::bytes("a then b", &contents(&target), &[pattern(100, 1), pattern(60, 2)].concat());
    rig.run(&record(|list| list.dispatch(&concat, vec![whole(&b), whole(&a), whole(&target)])));
    expect::bytes("b then a", &contents(&target), &[pattern(60, 2), pattern(100, 1)].concat());
}

/// As many arguments as the device offers, each in its place.
pub fn as_many_arguments_as_allowed(context: &Context) {
    let rig = context.shared();
    let sources = rig.device.limits().kernel_arguments - 1;
    let mix = rig.load(&TestKernel::Mix(sources));
    let buffers: Vec<Arc<dyn Buffer>> = (0..sources).map(|i| rig.buffer(&[i as u8 * 7 + 1; 64])).collect();
    let target = rig.zeroed(64);
    let bindings = buffers.iter().chain([&target]).map(whole).collect();
    rig.run(&record(|list| list.dispatch(&mix, bindings)));
    let sum: usize = (0..sources).map(|i| (i + 1) * (i * 7 + 1)).sum();
    expect::bytes("output", &contents(&target), &[sum as u8; 64]);
}

/// The same source may be given for several arguments.
pub fn arguments_may_repeat(context: &Context) {
    let rig = context.shared();
    let mix = rig.load(&TestKernel::Mix(3));
    let (source, target) = (rig.buffer(&[5; 64]), rig.zeroed(64));
    let bindings = vec![whole(&source), whole(&source), whole(&source), whole(&target)];
    rig.run(&record(|list| list.dispatch(&mix, bindings)));
    expect::bytes("output", &contents(&target), &[30; 64]);
}

/// Arguments may be parts of buffers; bytes beside the output stay.
pub fn arguments_may_be_parts(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let (source, target) = (rig.buffer(&pattern(4096, 1)), rig.buffer(&pattern(4096, 2)));
    rig.run(&record(|list| list.dispatch(&add, vec![part(&source, 100, 260), part(&target, 4, 260)])));
    let mut expected = pattern(4096, 2);
    expected[4..264].copy_from_slice(&plus(&pattern(4096, 1)[100..360], 1));
    expect::bytes("target", &contents(&target), &expected);
}

/// An output that is its source: the source is read as it was before.
pub fn output_may_be_its_source(context: &Context) {
    let rig = context.shared();
    let reverse = rig.load(&TestKernel::Reverse);
    let buffer = rig.buffer(&pattern(5000, 1));
    rig.run(&record(|list| list.dispatch(&reverse, vec![whole(&buffer), whole(&buffer)])));
    let expected: Vec<u8> = pattern(5000, 1).into_iter().rev().collect();
    expect::bytes("buffer", &contents(&buffer), &expected);
}

/// An output that overlaps sources in part, on either side: the sources are read as they were before.
pub fn output_may_overlap_sources(context: &Context) {
    let rig = context.shared();
    let concat = rig.load(&TestKernel::Concat);
    for (a, b, target) in [(0, 64, 32), (64, 0, 32), (32, 96, 0), (0, 32, 96), (128, 0, 64)] {
        let buffer = rig.buffer(&pattern(256, 1));
        let arguments = vec![part(&buffer, a, 64), part(&buffer, b, 64), part(&buffer, target, 128)];
        rig.run(&record(|list| list.dispatch(&concat, arguments)));
        let before = pattern(256, 1);
        let mut expected = before.clone();
        expected[target..target + 64].copy_from_slice(&before[a..a + 64]);
        expected[target + 64..target + 128].copy_from_slice(&before[b..b + 64]);
        expect::bytes(&format!("sources at {a} and {b}, output at {target}"), &contents(&buffer), &expected);
    }
}

/// Output bytes that the kernel does not write keep their value.
pub fn unwritten_output_bytes_stay(context: &Context) {
    let rig = context.shared();
    let even = rig.load(&TestKernel::Even);
    let (source, target) = (rig.buffer(&[255; 1000]), rig.buffer(&pattern(1000, 1)));
    rig.run(&record(|list| list.dispatch(&even, vec![whole(&source), whole(&target)])));
    let mut expected = pattern(1000, 1);
    expected.iter_mut().step_by(2).for_each(|byte| *byte = 255);
    expect::bytes("target", &contents(&target), &expected);
}

/// Dispatches that depend on each other, several times as many as fit one chain.
pub fn dependent_dispatches_beyond_a_chain(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let [a, b] = [0; 2].map(|_| rig.zeroed(256));
    let count = rig.device.limits().commands_per_chain * 3 + 2;
    rig.run(&record(|list| {
        for step in 0..count {
            let (from, to) = if step % 2 == 0 { (&a, &b) } else { (&b, &a) };
            list.dispatch(&add, vec![whole(from), whole(to)])?.barrier();
        }
        Ok(list)
    }));
    let last = if count.is_multiple_of(2) { &a } else { &b };
    expect::bytes(&format!("after {count} dispatches"), &contents(last), &vec![count as u8; 256]);
}

/// Dispatches that do not depend on each other, several times as many as fit one chain, each with its result.
pub fn independent_dispatches_beyond_a_chain(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let count = rig.device.limits().commands_per_chain * 3 + 2;
    let (source, target) = (rig.buffer(&pattern(count * 64, 1)), rig.zeroed(count * 64));
    rig.run(&record(|list| {
        for i in 0..count {
            list.dispatch(&add, vec![part(&source, i * 64, 64), part(&target, i * 64, 64)])?;
        }
        Ok(list)
    }));
    expect::bytes("target", &contents(&target), &plus(&pattern(count * 64, 1), 1));
}

/// Dispatches with as many arguments as allowed fill a chain's buffer before its command count; all run.
pub fn wide_dispatches_beyond_a_chain_buffer(context: &Context) {
    let rig = context.shared();
    let sources = rig.device.limits().kernel_arguments - 1;
    let mix = rig.load(&TestKernel::Mix(sources));
    let (source, target) = (rig.buffer(&[1; 64]), rig.zeroed(100 * 64));
    rig.run(&record(|list| {
        for i in 0..100 {
            let mut bindings = vec![whole(&source); sources];
            bindings.push(part(&target, i * 64, 64));
            list.dispatch(&mix, bindings)?;
        }
        Ok(list)
    }));
    let sum = (sources * (sources + 1) / 2) as u8;
    expect::bytes("target", &contents(&target), &[sum; 6400]);
}

fn distinct(rig: &Rig, count: usize) -> Vec<Arc<dyn Executable>> {
    (0..count).map(|id| rig.load(&TestKernel::Copy(id as u32))).collect()
}

/// One list with more distinct PDIs than a context holds, each used twice and in dependent order.
pub fn more_pdis_than_a_context_in_one_list(context: &Context) {
    let rig = context.shared();
    let executables = distinct(rig, rig.device.limits().pdis_per_context + 8);
    let buffers: Vec<Arc<dyn Buffer>> = (0..=executables.len()).map(|_| rig.zeroed(64)).collect();
    let list = record(|list| {
        for (executable, pair) in executables.iter().zip(buffers.windows(2)) {
            list.dispatch(executable, vec![whole(&pair[0]), whole(&pair[1])])?.barrier();
        }
        let last = &buffers[executables.len()];
        for executable in executables.iter().rev() {
            list.dispatch(executable, vec![whole(last), whole(&buffers[0])])?.barrier();
        }
        Ok(list)
    });
    for seed in 1..4 {
        rig.run(&record(|list| list.update(&pattern(64, seed), whole(&buffers[0]))));
        rig.run(&list);
        for buffer in &buffers {
            expect::bytes("every buffer", &contents(buffer), &pattern(64, seed));
        }
    }
}

/// Lists that together use more distinct PDIs than a context holds, in turns.
pub fn more_pdis_than_a_context_across_lists(context: &Context) {
    let rig = context.shared();
    let executables = distinct(rig, rig.device.limits().pdis_per_context + 8);
    let (source, target) = (rig.zeroed(64), rig.zeroed(64));
    let lists: Vec<_> = executables
        .iter()
        .map(|executable| record(|list| list.dispatch(executable, vec![whole(&source), whole(&target)])))
        .collect();
    for round in 0..3 {
        for (seed, list) in lists.iter().enumerate() {
            let bytes = pattern(64, seed as u8 + round);
            rig.run(&record(|list| list.update(&bytes, whole(&source))));
            rig.run(list);
            expect::bytes("target", &contents(&target), &bytes);
        }
    }
}

/// More distinct PDIs than all contexts of the device hold together: contexts make room.
pub fn more_pdis_than_all_contexts(context: &Context) {
    let rig = context.fresh();
    let limits = rig.device.limits();
    let executables = distinct(&rig, limits.pdis_per_context * limits.contexts + 5);
    let source = rig.buffer(&pattern(64, 1));
    for _ in 0..2 {
        for executable in &executables {
            let target = rig.zeroed(64);
            rig.run(&record(|list| list.dispatch(executable, vec![whole(&source), whole(&target)])));
            assert!(contents(&target) == pattern(64, 1), "{} computed nothing", executable.artifact().name());
        }
    }
    expect::note!("expected and found right results of {} PDIs, twice each", executables.len());
}

/// An artifact loaded twice is one PDI, and each executable works when the other is gone.
pub fn an_artifact_can_be_loaded_twice(context: &Context) {
    let rig = context.shared();
    let (first, second) = (rig.load(&TestKernel::Add8(9)), rig.load(&TestKernel::Add8(9)));
    expect::equal("digest", first.artifact().digest(), second.artifact().digest());
    let buffer = rig.zeroed(64);
    let run = |executable: &Arc<dyn Executable>| {
        rig.run(&record(|list| list.dispatch(executable, vec![whole(&buffer), whole(&buffer)])));
    };
    run(&first);
    run(&second);
    drop(first);
    run(&second);
    expect::bytes("buffer", &contents(&buffer), &[27; 64]);
}

/// Arguments through slots, rebound with offsets.
pub fn dispatches_take_slots(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let list = record(|list| list.dispatch(&add, vec![BufferRef::slot(0, 4, 64), BufferRef::slot(1, 0, 64)]));
    let (source, target) = (rig.buffer(&pattern(512, 1)), rig.zeroed(512));
    rig.run_with(&list, table(&[&source, &target]));
    let bind = |buffer: &Arc<dyn Buffer>, offset, length| Binding { buffer: Arc::clone(buffer), offset, length };
    let bindings = vec![bind(&source, 200, 100), bind(&target, 128, 64)];
    rig.run_with(&list, BindingTable { bindings });
    let mut expected = vec![0; 512];
    expected[..64].copy_from_slice(&plus(&pattern(512, 1)[4..68], 1));
    expected[128..192].copy_from_slice(&plus(&pattern(512, 1)[204..268], 1));
    expect::bytes("target", &contents(&target), &expected);
}

/// Transfers, dispatches and host calls of one list in turn, each using the result of the one before.
pub fn commands_of_all_kinds_in_turn(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let host = TestKernel::Mix(2).kernel();
    let [a, b, c] = [0; 3].map(|_| rig.zeroed(128));
    rig.run(&record(|list| {
        for _ in 0..60 {
            list.dispatch(&add, vec![whole(&a), whole(&b)])?.barrier();
            list.copy(whole(&b), whole(&c))?.barrier();
            list.host_call(&host, vec![whole(&b), whole(&c)], whole(&a))?.barrier();
        }
        Ok(list)
    }));
    let expected = (0..60).fold(0u8, |value, _| value.wrapping_add(1).wrapping_mul(3));
    expect::bytes("a", &contents(&a), &[expected; 128]);
}

/// A kernel that fails fails the signals with a cause that names it, and the rest of its list does not run.
pub fn failing_kernels_fail_the_submission(context: &Context) {
    let rig = context.fresh();
    let (fail, add) = (rig.load(&TestKernel::Fail), rig.load(&TestKernel::Add8(1)));
    let (source, target, after) = (rig.zeroed(64), rig.zeroed(64), rig.zeroed(64));
    let cause = rig.run_to_failure(&record(|list| {
        list.dispatch(&fail, vec![whole(&source), whole(&target)])?.barrier();
        list.dispatch(&add, vec![whole(&source), whole(&after)])
    }));
    expect_match!("cause", &*cause, DeviceError::Execution(_));
    expect::mentions(&cause, &["fail", FAILURE]);
    expect::bytes("target of a later command", &contents(&after), &[0; 64]);
}

/// After a failure the device works on: the same queue, the same kernel's neighbours, and submissions that wait for nothing.
pub fn work_goes_on_after_a_failure(context: &Context) {
    let rig = context.fresh();
    let (fail, add) = (rig.load(&TestKernel::Fail), rig.load(&TestKernel::Add8(1)));
    let (source, target) = (rig.zeroed(64), rig.zeroed(64));
    let bad = record(|list| list.dispatch(&fail, vec![whole(&source), whole(&target)]));
    let good = record(|list| list.dispatch(&add, vec![whole(&target), whole(&target)]));
    for round in 1..=5 {
        rig.run_to_failure(&bad);
        rig.run(&good);
        expect::bytes("target", &contents(&target), &[round; 64]);
    }
}

/// Work that waits for failed work fails with the same cause.
pub fn dependents_of_a_failure_fail(context: &Context) {
    let rig = context.fresh();
    let fail = rig.load(&TestKernel::Fail);
    let (source, target) = (rig.zeroed(64), rig.zeroed(64));
    let bad = record(|list| list.dispatch(&fail, vec![whole(&source), whole(&target)]));
    let fill = record(|list| list.fill(&[1], whole(&source)));
    let (first, second) = (rig.semaphore(), rig.semaphore());
    let dependent = Submission { waits: vec![at(&first, 1)], ..signalling(&fill, vec![at(&second, 1)]) };
    rig.queue.submit(dependent).expect("a valid submission");
    rig.queue.submit(signalling(&bad, vec![at(&first, 1)])).expect("a valid submission");
    let cause = crate::rig::finished(&at(&first, 1));
    expect::holds("the first fails", &cause, cause.is_err());
    expect::equal("the dependent one", crate::rig::finished(&at(&second, 1)), cause);
    expect::bytes("target of the dependent one", &contents(&source), &[0; 64]);
}

/// Machine code computes: kernels whose cores work on blocks, with different amounts of data for one PDI, one after the other and
/// by turns.
pub fn machine_code_computes(context: &Context) {
    let rig = context.fresh();
    let load = |addend, blocks| {
        let artifact = compiled::add(rig.device.arch(), addend, blocks);
        rig.device.load_executable(&artifact).unwrap_or_else(|e| panic!("loading {artifact:?}: {e}"))
    };
    for (blocks, seed) in [(1, 1), (64, 2), (3, 3)] {
        let (one, two) = (load(1, blocks), load(2, blocks));
        let bytes = pattern(4 * blocks * compiled::BLOCK_WORDS, seed);
        let (words, _) = bytes.as_chunks();
        let plus = |addend: u32| -> Vec<u8> {
            words.iter().flat_map(|word| u32::from_le_bytes(*word).wrapping_add(addend).to_le_bytes()).collect()
        };
        let source = rig.buffer(&bytes);
        let [first, second, third] = [(); 3].map(|()| rig.zeroed(bytes.len()));
        rig.run(&record(|list| {
            list.dispatch(&one, vec![whole(&source), whole(&first)])?.barrier();
            list.dispatch(&one, vec![whole(&first), whole(&second)])?.barrier();
            list.dispatch(&two, vec![whole(&second), whole(&third)])
        }));
        for (result, addend) in [(first, 1), (second, 2), (third, 4)] {
            expect::bytes(&format!("{blocks} blocks plus {addend}"), &contents(&result), &plus(addend));
        }
    }
}

/// Machine code on buffers that are apart: what is joined to one dispatch has more arguments than firmware translates addresses of.
pub fn machine_code_uses_many_buffers(context: &Context) {
    let rig = context.fresh();
    let artifact = compiled::add(rig.device.arch(), 3, 2);
    let kernel = rig.device.load_executable(&artifact).unwrap_or_else(|e| panic!("loading {artifact:?}: {e}"));
    let length = 2 * 4 * compiled::BLOCK_WORDS;
    let sources: Vec<_> = (0..4).map(|seed| rig.buffer(&pattern(length, seed))).collect();
    let results: Vec<_> = sources.iter().map(|_| rig.zeroed(length)).collect();
    rig.run(&record(|list| {
        for (source, result) in sources.iter().zip(&results) {
            list.dispatch(&kernel, vec![whole(source), whole(result)])?.barrier();
        }
        Ok(list)
    }));
    for (source, result) in sources.iter().zip(&results) {
        let source = contents(source);
        let words = source.as_chunks().0.iter();
        let expected: Vec<u8> =
            words.flat_map(|word| u32::from_le_bytes(*word).wrapping_add(3).to_le_bytes()).collect();
        expect::bytes("sums", &contents(result), &expected);
    }
}

/// Machine code whose instructions depend on data, between neighbours: the list is submitted again, with other data, before it has ended.
pub fn machine_code_goes_by_data(context: &Context) {
    let rig = context.fresh();
    let load = |artifact: KernelArtifact| {
        rig.device.load_executable(&artifact).unwrap_or_else(|e| panic!("loading {artifact:?}: {e}"))
    };
    let block = 4 * compiled::BLOCK_WORDS;
    let arch = rig.device.arch();
    let (rows, one) = (load(compiled::add_as_many(arch, 1, 2)), load(compiled::add(arch, 1, 1)));
    let counts = [1, 2].map(|count| rig.buffer(&[vec![count; block], vec![0; block]].concat()));
    let (before, between) = (rig.zeroed(block), rig.zeroed(block));
    let list = record(|list| {
        list.dispatch(&one, vec![whole(&before), whole(&before)])?.barrier();
        list.dispatch(&rows, vec![BufferRef::slot(0, 0, 2 * block), BufferRef::slot(1, 0, 2 * block)])?.barrier();
        list.dispatch(&one, vec![BufferRef::slot(1, 0, block), whole(&between)])
    });
    let results: Vec<_> = (0..8).map(|_| rig.zeroed(2 * block)).collect();
    let turns = || results.iter().zip([1_u8, 2, 2, 1].into_iter().cycle());
    let ends: Vec<_> =
        turns().map(|(result, count)| rig.submit(&list, table(&[&counts[usize::from(count) - 1], result]))).collect();
    ends.iter().for_each(reached);
    for (result, count) in turns() {
        let result = contents(result);
        expect::equal("the first block's byte", result[0], count + 1);
        expect::equal("the second block's byte", result[block], count - 1);
    }
    expect::equal("what was before", contents(&before)[0], 8);
    expect::equal("what was between", contents(&between)[0], 3);
}

/// A PDI that nothing here can execute loads, as on hardware; its dispatches time out with the reason, and work continues.
pub fn unknown_designs_time_out(context: &Context) {
    let rig = context.fresh();
    let mut cdo = CdoBuilder::new();
    cdo.nop(&[]).mask_write(0x0023_2000, 1, 1);
    let pdi = pdi::write(&cdo).expect("a short CDO");
    let artifact = kernels::artifact("compiled_design", rig.device.arch(), pdi, 2).expect("a valid artifact");
    let executable = rig.device.load_executable(&artifact).unwrap_or_else(|e| panic!("loading a design: {e}"));
    let (source, target) = (rig.zeroed(64), rig.zeroed(64));
    let cause = rig.run_to_failure(&record(|list| list.dispatch(&executable, vec![whole(&source), whole(&target)])));
    expect_match!("cause", &*cause, DeviceError::Timeout(_));
    expect::mentions(&cause, &["compiled_design"]);
    let add = rig.load(&TestKernel::Add8(1));
    rig.run(&record(|list| list.dispatch(&add, vec![whole(&source), whole(&target)])));
    expect::bytes("later work", &contents(&target), &[1; 64]);
}

/// Megabytes through one kernel, with every byte right.
pub fn large_arguments(context: &Context) {
    let rig = context.shared();
    let size = 16 << 20;
    let reverse = rig.load(&TestKernel::Reverse);
    let (source, target) = (rig.buffer(&pattern(size, 1)), rig.zeroed(size));
    let list = record(|list| list.dispatch(&reverse, vec![whole(&source), whole(&target)]));
    reached(&rig.submit(&list, BindingTable::default()));
    let expected: Vec<u8> = pattern(size, 1).into_iter().rev().collect();
    expect::bytes("target", &contents(&target), &expected);
}
