//! What a caller can get wrong: each mistake is refused with a message, touches nothing, and the device works on.

use crate::expect::{self, expect_match};
use crate::kernels::TestKernel;
use crate::rig::{Context, Rig, at, contents, nothing, part, pattern, reached, record, signalling, table, whole};
use aie_hal::semaphore::MAX_VALUE;
use aie_hal::{
    Arch, ArchRegistry, Binding, BindingTable, BufferRef, CommandList, DeviceError, Submission, SubmitError,
};
use std::sync::Arc;

/// A generation that the device is not of.
fn other_arch(rig: &Rig) -> Arc<Arch> {
    let registry = ArchRegistry::builtin();
    let own = &rig.device.arch().name;
    let other = registry.names().find(|name| name != own).map(ToOwned::to_owned);
    registry.get(&other.expect("another generation is built in")).expect("a listed generation")
}

/// The device runs a list after what went before.
fn still_works(rig: &Rig) {
    let buffer = rig.zeroed(64);
    rig.run(&record(0, |list| list.fill(&[1], whole(&buffer))));
    expect::bytes("work after the mistake", &contents(&buffer), &[1; 64]);
}

/// A kernel of another generation is refused, naming both.
pub fn kernels_of_other_generations_are_refused(context: &Context) {
    let rig = context.shared();
    let other = other_arch(rig);
    let artifact = TestKernel::Add8(1).artifact(&other);
    let result = rig.device.load_executable(&artifact).map(drop);
    let error = expect_match!("loading", result, Err(e @ DeviceError::InvalidArtifact { .. }) => e);
    expect::mentions(&error, &["add8_1", &other.name, &rig.device.arch().name]);
    still_works(rig);
}

/// Fewer or more bindings than slots are refused, naming both numbers.
pub fn wrong_binding_counts_are_refused(context: &Context) {
    let rig = context.shared();
    let list = record(2, |list| list.copy(BufferRef::slot(0, 0, 64), BufferRef::slot(1, 0, 64)));
    let buffers = [0; 3].map(|_| rig.zeroed(64));
    for given in [0, 1, 3] {
        let bindings = table(&buffers.iter().take(given).collect::<Vec<_>>());
        let error = expect_match!("submitting", rig.refused(&list, bindings), e @ SubmitError::Binding(_) => e);
        expect::mentions(&error, &[&given.to_string(), "2"]);
    }
    still_works(rig);
}

/// Bindings without a list are a mistake too.
pub fn bindings_without_a_list_are_refused(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(64);
    let result = rig.queue.submit(Submission { bindings: table(&[&buffer]), ..Submission::default() });
    expect_match!("submitting", result, Err(SubmitError::Binding(_)));
}

/// A binding that leaves its buffer is refused, also where the sum of offset and length wraps around.
pub fn bindings_outside_their_buffer_are_refused(context: &Context) {
    let rig = context.shared();
    let list = record(1, |list| list.fill(&[1], BufferRef::slot(0, 0, 16)));
    let buffer = rig.zeroed(64);
    for (offset, length) in [(0, 65), (64, 16), (49, 16), (usize::MAX, 16), (usize::MAX - 7, 16), (16, usize::MAX)] {
        let bindings = vec![Binding { buffer: Arc::clone(&buffer), offset, length }];
        let refusal = rig.refused(&list, BindingTable { bindings });
        let error = expect_match!("submitting", refusal, e @ SubmitError::Binding(_) => e);
        expect::mentions(&error, &["64"]);
    }
    expect::bytes("the buffer", &contents(&buffer), &[0; 64]);
}

/// A reference that leaves its binding is refused, also where the binding's buffer would have room.
pub fn references_outside_their_binding_are_refused(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(256);
    for (offset, length) in [(0, 65), (64, 1), (1, 64)] {
        let list = record(1, |list| list.fill(&[1], BufferRef::slot(0, offset, length)));
        let bindings = vec![Binding { buffer: Arc::clone(&buffer), offset: 0, length: 64 }];
        let refusal = rig.refused(&list, BindingTable { bindings });
        let error = expect_match!("submitting", refusal, e @ SubmitError::Binding(_) => e);
        expect::mentions(&error, &["64"]);
    }
    expect::bytes("the buffer", &contents(&buffer), &[0; 256]);
}

/// A slot reference whose end wraps around is refused, when recording or when submitting, without a panic.
pub fn wrapping_slot_references_are_refused(context: &Context) {
    let rig = context.shared();
    let buffer = rig.zeroed(64);
    for (offset, length) in [(usize::MAX, 1), (usize::MAX - 3, 4), (64, usize::MAX), (usize::MAX - 3, 8)] {
        let mut list = CommandList::builder();
        let recorded = list.fill(&[1], BufferRef::slot(0, offset, length)).map(drop);
        expect::note!("recording {offset}+{length}: {recorded:?}");
        if recorded.is_ok() {
            rig.refused(&Arc::new(list.finish()), table(&[&buffer]));
        }
    }
    expect::bytes("the buffer", &contents(&buffer), &[0; 64]);
    still_works(rig);
}

/// A missing barrier is refused, naming both commands: write after write, read after write, write after read.
pub fn missing_barriers_are_refused(context: &Context) {
    let rig = context.shared();
    let [a, b, c] = [0; 3].map(|_| rig.zeroed(256));
    let add = rig.load(&TestKernel::Add8(1));
    let lists = [
        record(0, |list| list.fill(&[1], whole(&a))?.fill(&[2], part(&a, 255, 1))),
        record(0, |list| list.fill(&[1], whole(&a))?.copy(whole(&a), whole(&b))),
        record(0, |list| list.copy(whole(&a), whole(&b))?.fill(&[1], part(&a, 0, 1))),
        record(0, |list| list.dispatch(&add, vec![whole(&a), whole(&b)])?.dispatch(&add, vec![whole(&b), whole(&c)])),
        record(0, |list| {
            list.fill(&[1], whole(&c))?.barrier().fill(&[1], part(&a, 0, 128))?;
            list.fill(&[2], part(&a, 128, 128))?.copy(part(&a, 127, 2), part(&b, 0, 2))
        }),
    ];
    for list in &lists {
        let refusal = rig.refused(list, BindingTable::default());
        let error = expect_match!("submitting", refusal, e @ SubmitError::CommandList(_) => e);
        expect::mentions(&error, &["command", "barrier"]);
    }
    expect::bytes("a", &contents(&a), &[0; 256]);
    still_works(rig);
}

/// A missing barrier between slots is refused, and so is one that only the bindings make necessary.
pub fn missing_barriers_through_slots_are_refused(context: &Context) {
    let rig = context.shared();
    let (a, b) = (rig.zeroed(256), rig.zeroed(256));
    let same = record(1, |list| list.fill(&[1], BufferRef::slot(0, 0, 64))?.fill(&[2], BufferRef::slot(0, 63, 64)));
    expect_match!("one slot", rig.refused(&same, table(&[&a])), SubmitError::CommandList(_));
    let two = record(2, |list| list.fill(&[1], BufferRef::slot(0, 0, 64))?.fill(&[2], BufferRef::slot(1, 0, 64)));
    rig.run_with(&two, table(&[&a, &b]));
    let refusal = rig.refused(&two, table(&[&a, &a]));
    expect_match!("two slots with one buffer", refusal, SubmitError::CommandList(_) | SubmitError::Binding(_));
    let bind = |offset| Binding { buffer: Arc::clone(&a), offset, length: 64 };
    rig.run_with(&two, BindingTable { bindings: vec![bind(0), bind(64)] });
    let refusal = rig.refused(&two, BindingTable { bindings: vec![bind(0), bind(60)] });
    expect_match!("two slots that overlap", refusal, SubmitError::CommandList(_) | SubmitError::Binding(_));
    let expected: Vec<u8> = [[1; 64], [2; 64], [0; 64], [0; 64]].concat();
    expect::bytes("a", &contents(&a), &expected);
}

/// Commands that touch different bytes, or only read the same, need no barrier.
pub fn barriers_are_not_asked_for_in_vain(context: &Context) {
    let rig = context.shared();
    let (source, a, b) = (rig.buffer(&pattern(256, 1)), rig.zeroed(256), rig.zeroed(256));
    rig.run(&record(0, |list| {
        list.copy(whole(&source), whole(&a))?.copy(part(&source, 0, 128), part(&b, 0, 128))?;
        list.copy(part(&source, 128, 128), part(&b, 128, 128))
    }));
    expect::bytes("a", &contents(&a), &pattern(256, 1));
    expect::bytes("b", &contents(&b), &pattern(256, 1));
}

/// A copy whose slots are bound to overlapping ranges is refused.
pub fn copies_that_overlap_as_bound_are_refused(context: &Context) {
    let rig = context.shared();
    let buffer = rig.buffer(&pattern(256, 1));
    let list = record(2, |list| list.copy(BufferRef::slot(0, 0, 64), BufferRef::slot(1, 0, 64)));
    let bind = |offset| Binding { buffer: Arc::clone(&buffer), offset, length: 64 };
    for offset in [0, 1, 63] {
        let refusal = rig.refused(&list, BindingTable { bindings: vec![bind(0), bind(offset)] });
        expect_match!("submitting", refusal, SubmitError::Binding(_) | SubmitError::CommandList(_));
    }
    expect::bytes("the buffer", &contents(&buffer), &pattern(256, 1));
}

/// Kernel arguments have the granularity of the shim DMA, 4 bytes; others are refused, direct or bound.
pub fn misaligned_arguments_are_refused(context: &Context) {
    let rig = context.shared();
    let add = rig.load(&TestKernel::Add8(1));
    let (source, target) = (rig.zeroed(256), rig.zeroed(256));
    for offset in [1, 2, 3, 5] {
        for (from, to) in [(offset, 0), (0, offset)] {
            let direct = record(0, |list| list.dispatch(&add, vec![part(&source, from, 64), part(&target, to, 64)]));
            let error = rig.refused(&direct, BindingTable::default());
            expect::mentions(&error, &["add8_1", "multiple of 4"]);
            let slots =
                record(2, |list| list.dispatch(&add, vec![BufferRef::slot(0, 0, 64), BufferRef::slot(1, 0, 64)]));
            let bind =
                |buffer: &Arc<dyn aie_hal::Buffer>, offset| Binding { buffer: Arc::clone(buffer), offset, length: 64 };
            let bindings = vec![bind(&source, from), bind(&target, to)];
            let error = rig.refused(&slots, BindingTable { bindings });
            expect::mentions(&error, &["add8_1", "multiple of 4"]);
        }
    }
    still_works(rig);
}

/// A signal that would not increase its semaphore is refused.
pub fn signals_that_do_not_increase_are_refused(context: &Context) {
    let rig = context.shared();
    let semaphore = rig.semaphore();
    semaphore.signal(5).expect("an increase");
    let list = nothing();
    for value in [0, 4, 5, u64::MAX] {
        let result = rig.queue.submit(signalling(&list, vec![at(&semaphore, value)]));
        let error = expect_match!(format!("a signal to {value}"), result, Err(e @ SubmitError::Semaphores(_)) => e);
        expect::mentions(&error, &["signal 0"]);
        expect::equal("value", semaphore.query(), Ok(5));
    }
    rig.queue.submit(signalling(&list, vec![at(&semaphore, MAX_VALUE)])).expect("an increase");
    reached(&at(&semaphore, MAX_VALUE));
}

/// One semaphore signalled twice by one submission is refused.
pub fn a_semaphore_signalled_twice_is_refused(context: &Context) {
    let rig = context.shared();
    let semaphore = rig.semaphore();
    let signals = vec![at(&semaphore, 1), at(&semaphore, 2)];
    let result = rig.queue.submit(signalling(&nothing(), signals));
    expect_match!("two signals", result, Err(SubmitError::Semaphores(_)));
    expect::equal("value", semaphore.query(), Ok(0));
}

/// A wait for a value that no semaphore can have is refused.
pub fn waits_beyond_the_maximum_are_refused(context: &Context) {
    let rig = context.shared();
    let semaphore = rig.semaphore();
    let result = rig.queue.submit(Submission { waits: vec![at(&semaphore, u64::MAX)], ..Submission::default() });
    expect_match!("a wait", result, Err(SubmitError::Semaphores(_)));
}

/// A refused submission counts nothing, runs nothing, and fails nothing.
pub fn refused_submissions_touch_nothing(context: &Context) {
    let rig = context.fresh();
    let buffer = rig.zeroed(64);
    let before = rig.device.counters();
    let bad = record(0, |list| list.fill(&[1], whole(&buffer))?.fill(&[2], whole(&buffer)));
    let missing = record(1, |list| list.fill(&[1], BufferRef::slot(0, 0, 64))?.barrier().fill(&[1], whole(&buffer)));
    for list in [&bad, &missing] {
        rig.refused(list, BindingTable::default());
    }
    rig.queue.wait_idle(None).expect("an idle queue");
    expect::equal("counters", rig.device.counters(), before);
    expect::bytes("the buffer", &contents(&buffer), &[0; 64]);
    still_works(&rig);
}
