//! Recording and resolving.

use super::*;
use crate::artifact::example;
use crate::host_function::from_fn;
use crate::mock::{MockBuffer, MockExecutable};
use rstest::rstest;
use std::sync::atomic::{AtomicUsize, Ordering};

fn buffer(size: usize) -> Arc<dyn Buffer> {
    Arc::new(MockBuffer::with_memory(size))
}

fn executable() -> Arc<dyn Executable> {
    Arc::new(MockExecutable::of(&example("aie2p", "add", 0..3)))
}

#[rstest]
#[case::start(0, 16, Ok(()))]
#[case::end(16, 0, Ok(()))]
#[case::beyond(16, 1, Err(ResolveError::OutOfRange { offset: 16, length: 1, size: 16 }))]
#[case::long(0, 17, Err(ResolveError::OutOfRange { offset: 0, length: 17, size: 16 }))]
#[case::overflow(usize::MAX, 2, Err(ResolveError::OutOfRange { offset: usize::MAX, length: 2, size: 16 }))]
fn ranges_are_checked_when_recording_and_when_resolving(
    #[case] offset: usize,
    #[case] length: usize,
    #[case] expected: Result<(), ResolveError>,
) {
    let buffer = buffer(16);
    let direct = BufferRef::direct(&buffer, offset, length);
    assert_eq!(direct.locate(&BindingTable::default()).map(drop), expected);
    let recorded = CommandList::builder().fill(&[0], direct).map(drop);
    assert_eq!(recorded, expected.clone().map_err(RecordError::Range));
    let table = BindingTable { bindings: vec![Binding { buffer: Arc::clone(&buffer), offset, length }] };
    assert_eq!(BufferRef::slot(0, 0, 0).locate(&table).map(drop), expected.clone());
    let table = BindingTable { bindings: vec![Binding { buffer, offset: 0, length: 16 }] };
    assert_eq!(BufferRef::slot(0, offset, length).locate(&table).map(drop), expected);
}

#[test]
fn slots_resolve_relative_to_their_binding() {
    let buffer = buffer(16);
    let table = BindingTable { bindings: vec![Binding { buffer: Arc::clone(&buffer), offset: 4, length: 8 }] };
    let reference = BufferRef::slot(0, 2, 6);
    let (found, offset, length) = reference.locate(&table).unwrap();
    assert!(Arc::ptr_eq(found, &buffer));
    assert_eq!((offset, length), (6, 6));
    let error = BufferRef::slot(0, 2, 7).locate(&table).unwrap_err();
    assert_eq!(error, ResolveError::OutOfRange { offset: 2, length: 7, size: 8 });
    let error = BufferRef::slot(1, 0, 1).locate(&table).unwrap_err();
    assert_eq!(error.to_string(), "slot 1 is not bound; the table has 1 bindings");
}

#[test]
fn slots_are_counted_when_recording() {
    let mut list = CommandList::builder();
    list.fill(&[0], BufferRef::slot(1, 0, 1)).unwrap();
    assert!(list.fill(&[0], BufferRef::slot(2, usize::MAX, 1)).is_err());
    let error = list.fill(&[0], BufferRef::slot(usize::MAX, 0, 1)).unwrap_err();
    assert_eq!(error.to_string(), "slot 18446744073709551615; a command list has at most 65536 slots");
    let list = list.finish();
    assert_eq!((list.commands().len(), list.slots()), (1, 2), "rejected commands are not recorded");
}

#[rstest]
#[case(&[], 0, 4, false)]
#[case(&[1], 1, 3, true)]
#[case(&[1, 2], 2, 2, true)]
#[case(&[1, 2], 1, 2, false)]
#[case(&[1, 2], 2, 3, false)]
#[case(&[1, 2, 3], 0, 3, false)]
#[case(&[1, 2, 3, 4], 4, 8, true)]
#[case(&[1, 2, 3, 4], 2, 8, false)]
#[case(&[1, 2, 3, 4, 5, 6, 7, 8], 0, 8, false)]
fn fill_patterns_divide_their_target(
    #[case] pattern: &[u8],
    #[case] offset: usize,
    #[case] length: usize,
    #[case] valid: bool,
) {
    let buffer = buffer(16);
    for target in [BufferRef::direct(&buffer, offset, length), BufferRef::slot(0, offset, length)] {
        let result = CommandList::builder().fill(pattern, target).map(drop);
        assert_eq!(result.is_ok(), valid, "{result:?}");
        assert!(valid || matches!(result, Err(RecordError::Fill(_))));
    }
}

#[test]
fn updates_capture_their_bytes() {
    let buffer = buffer(MAX_UPDATE_BYTES + 1);
    let mut list = CommandList::builder();
    let mut data = vec![1, 2, 3];
    list.update(&data, BufferRef::direct(&buffer, 0, 3)).unwrap();
    data[0] = 9;
    list.update(&vec![0; MAX_UPDATE_BYTES], BufferRef::direct(&buffer, 0, MAX_UPDATE_BYTES)).unwrap();
    let error = list.update(&data, BufferRef::direct(&buffer, 0, 4)).unwrap_err();
    assert_eq!(error.to_string(), "update: 3 bytes for a target of 4");
    let large = BufferRef::direct(&buffer, 0, MAX_UPDATE_BYTES + 1);
    let error = list.update(&vec![0; MAX_UPDATE_BYTES + 1], large).unwrap_err();
    assert_eq!(error.to_string(), "update: 65537 bytes; at most 65536, use a copy");
    let list = list.finish();
    assert!(matches!(&list.commands()[0], Command::Update { data, .. } if **data == [1, 2, 3]));
}

#[rstest]
#[case::apart(0, 8, 8, true)]
#[case::apart_backwards(8, 0, 8, true)]
#[case::overlap(0, 7, 8, false)]
#[case::overlap_backwards(7, 0, 8, false)]
#[case::same(4, 4, 1, false)]
#[case::empty(4, 4, 0, true)]
fn copies_do_not_overlap(#[case] source: usize, #[case] target: usize, #[case] length: usize, #[case] valid: bool) {
    let (one, two) = (buffer(16), buffer(16));
    let direct = |buffer: &Arc<dyn Buffer>, offset| BufferRef::direct(buffer, offset, length);
    let slot = |slot, offset| BufferRef::slot(slot, offset, length);
    let mut list = CommandList::builder();
    assert_eq!(list.copy(direct(&one, source), direct(&one, target)).is_ok(), valid);
    assert_eq!(list.copy(slot(0, source), slot(0, target)).is_ok(), valid);
    list.copy(direct(&one, source), direct(&two, target)).unwrap();
    list.copy(slot(0, source), slot(1, target)).unwrap();
    list.copy(direct(&one, source), slot(1, target)).unwrap();
}

#[test]
fn argument_counts_are_checked() {
    let (buffer, executable) = (buffer(16), executable());
    let function = from_fn("two", 2, |_, _| Ok(()));
    let refs = |count: usize| vec![BufferRef::direct(&buffer, 0, 4); count];
    let mut list = CommandList::builder();
    for count in [0, 2, 4] {
        let error = list.dispatch(&executable, refs(count)).unwrap_err();
        assert_eq!(error.to_string(), format!("dispatch of `add`: {count} bindings given, the kernel takes 3"));
    }
    for count in [0, 1, 3] {
        let error = list.host_call(&function, refs(count), BufferRef::direct(&buffer, 8, 4)).unwrap_err();
        assert_eq!(error.to_string(), format!("host call of `two`: {count} inputs given, it takes 2"));
    }
    let copy = list.copy(BufferRef::direct(&buffer, 0, 4), BufferRef::direct(&buffer, 8, 5)).unwrap_err();
    assert_eq!(copy.to_string(), "copy: 4 bytes to a target of 5");
    assert!(list.finish().commands().is_empty());
}

#[test]
fn references_name_every_range_and_its_access() {
    use Access::{Read, Write};
    let (buffer, executable) = (buffer(64), executable());
    let function = from_fn("two", 2, |_, _| Ok(()));
    let at = |offset| BufferRef::direct(&buffer, offset, 4);
    let mut list = CommandList::builder();
    list.fill(&[0], at(0)).unwrap().update(&[0; 4], at(4)).unwrap().copy(at(8), at(12)).unwrap();
    list.dispatch(&executable, vec![at(16), at(20), at(24)]).unwrap();
    list.host_call(&function, vec![at(28), at(32)], at(36)).unwrap().barrier();
    let found: Vec<Vec<(usize, Access)>> = list
        .finish()
        .commands()
        .iter()
        .map(|command| command.references().map(|(reference, access)| (reference.offset, access)).collect())
        .collect();
    let expected = [
        vec![(0, Write)],
        vec![(4, Write)],
        vec![(8, Read), (12, Write)],
        vec![(16, Read), (20, Read), (24, Write)],
        vec![(28, Read), (32, Read), (36, Write)],
        vec![],
    ];
    assert_eq!(found, expected);
}

#[test]
fn barriers_are_recorded_only_where_they_order_something() {
    let buffer = buffer(16);
    let mut list = CommandList::builder();
    list.barrier().fill(&[0], BufferRef::direct(&buffer, 0, 1)).unwrap().barrier().barrier();
    let list = list.finish();
    assert!(matches!(list.commands(), [Command::Fill { .. }, Command::Barrier]));
}

#[test]
fn a_list_keeps_its_buffers() {
    let buffer = buffer(16);
    let weak = Arc::downgrade(&buffer);
    let mut list = CommandList::builder();
    list.fill(&[0], BufferRef::direct(&buffer, 0, 1)).unwrap();
    let list = list.finish();
    drop(buffer);
    assert!(weak.upgrade().is_some());
    drop(list);
    assert!(weak.upgrade().is_none());
}

#[test]
fn what_is_derived_is_made_once_and_kept_with_the_list() {
    let list = CommandList::builder().finish();
    let made = AtomicUsize::new(0);
    let plan = || {
        made.fetch_add(1, Ordering::Relaxed);
        "plan".to_owned()
    };
    let first: *const String = list.derived(plan).unwrap();
    assert!(std::ptr::eq(first, list.derived(plan).unwrap()));
    assert_eq!(made.load(Ordering::Relaxed), 1);
    assert_eq!(list.derived(|| 7_u32), None, "another layer has to do without");
}
