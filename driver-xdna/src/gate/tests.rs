//! The hooks, called by a made-up ROCR: the calls of a doorbell in their order, on a descriptor that is no device's. What
//! passes the gate fails on it, and so is told from what the gate answers.

use super::call::Call;
use super::doorbell::UNTOUCHED;
use super::*;
use amdxdna_sys::ert::{self, chain, opcode, start_cu, state};
use amdxdna_sys::{amdxdna_drm_exec_cmd, amdxdna_drm_wait_cmd};
use rstest::rstest;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::mpsc::channel;

/// Bytes of the file behind the made-up node.
const FILE_BYTES: usize = 1 << 16;
const PAGE: usize = 4096;
const LIMIT: Duration = Duration::from_secs(5);

const CONTEXT: (HardwareContext, Way) = (HardwareContext { handle: 5, timeline: 0 }, Way::WaitCmd);

/// The descriptor of the gate is the process's: one test at a time uses it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn new_gate() -> Gate {
    Gate { descriptor: AtomicI32::new(-1), imagined: Mutex::default() }
}

fn gate() -> &'static Gate {
    GATE.get_or_init(new_gate)
}

/// A made-up node that the gate takes for ROCR's.
fn node() -> OwnedFd {
    let file = memfd_create("node", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE_BYTES as u64).unwrap();
    gate().descriptor.store(file.as_raw_fd(), Ordering::Relaxed);
    file
}

/// Calls the hook as ROCR calls `ioctl`; the error is the system's.
fn ioctl<T: Request>(node: &OwnedFd, structure: &mut T) -> io::Result<()> {
    // SAFETY: the structure is the one of the request.
    match unsafe { hooks::ioctl(node.as_raw_fd(), T::CODE.0.into(), (structure as *mut T).cast()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn mmap(node: &OwnedFd, bytes: usize, offset: Offset) -> *mut c_void {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
    // SAFETY: a new mapping at a place the kernel chooses, or one the test has reserved.
    unsafe { hooks::mmap(std::ptr::null_mut(), bytes, protection, flags, node.as_raw_fd(), offset) }
}

fn munmap(address: *mut c_void, bytes: usize) {
    // SAFETY: the tests unmap only what they have mapped, and do not use it afterwards unless the hook has kept it.
    assert_eq!(unsafe { hooks::munmap(address, bytes) }, 0);
}

/// Command buffers in plain memory, which stays.
fn command_buffers(count: u32) -> CommandBuffers {
    let page = |index| CommandBuffer {
        handle: 100 + index,
        map_offset: 0x1_0000_0000 + u64::from(index) * PAGE as u64,
        address: NonNull::from(Box::leak(Box::new([u32::MAX; CommandBuffer::WORDS]))).cast(),
    };
    CommandBuffers { free: (0..count).map(page).collect(), held: Vec::new() }
}

/// How a doorbell of the made-up ROCR differs from what is known of the real one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Change {
    #[default]
    None,
    TwoCommands,
    UnknownChain,
    NoChain,
    WrongCount,
    UnknownCommand,
    TwoUnits,
    NoUnit,
    NoExecute,
    NoWait,
}

/// A buffer as ROCR makes it: handle and mapping.
fn make_buffer(node: &OwnedFd) -> (u32, *mut u32) {
    let mut create = amdxdna_drm_create_bo { size: PAGE as u64, type_: AMDXDNA_BO_CMD, ..Default::default() };
    ioctl(node, &mut create).unwrap();
    let mut info = amdxdna_drm_get_bo_info { handle: create.handle, ..Default::default() };
    ioctl(node, &mut info).unwrap();
    let address = mmap(node, PAGE, info.map_offset as Offset);
    assert_ne!(address, libc::MAP_FAILED);
    (create.handle, address.cast())
}

fn set(buffer: (u32, *mut u32), word: usize, value: u32) {
    assert!(word < CommandBuffer::WORDS);
    // SAFETY: the buffer is a page, and the word is inside.
    unsafe { buffer.1.add(word).write_volatile(value) };
}

/// What ROCR does in a doorbell for `count` packets. Every call succeeds for it.
fn doorbell(node: &OwnedFd, count: usize, change: Change) {
    let commands: Vec<_> = (0..count).map(|_| make_buffer(node)).collect();
    let units = match change {
        Change::TwoUnits => 3,
        Change::NoUnit => 0,
        _ => 1,
    };
    for command in &commands {
        set(*command, start_cu::CU_MASK, units);
        set(*command, start_cu::PAYLOAD, 3);
    }
    let list = make_buffer(node);
    set(list, 0, if change == Change::NoChain { 0 } else { ert::header(opcode::CMD_CHAIN, 0) });
    set(list, chain::COMMAND_COUNT, count as u32 + u32::from(change == Change::WrongCount));
    for (index, command) in commands.iter().enumerate() {
        set(list, chain::HANDLES + 2 * index, if change == Change::UnknownCommand { 7 } else { command.0 });
        set(list, chain::HANDLES + 2 * index + 1, 0);
    }
    let mut context = amdxdna_drm_create_hwctx::default();
    ioctl(node, &mut context).unwrap();
    assert_eq!(context.handle, IMAGINED_CONTEXT);
    ioctl(node, &mut amdxdna_drm_config_hwctx { handle: context.handle, ..Default::default() }).unwrap();
    let mut execute = amdxdna_drm_exec_cmd {
        hwctx: context.handle,
        cmd_handles: u64::from(if change == Change::UnknownChain { 7 } else { list.0 }),
        cmd_count: 1 + u32::from(change == Change::TwoCommands),
        ..Default::default()
    };
    if change != Change::NoExecute {
        ioctl(node, &mut execute).unwrap();
    }
    if change != Change::NoWait {
        ioctl(node, &mut amdxdna_drm_wait_cmd { hwctx: context.handle, ..Default::default() }).unwrap();
    }
    for (handle, address) in commands.into_iter().chain([list]) {
        munmap(address.cast(), PAGE);
        // Its mapping is still there.
        set((handle, address), 1000, 42);
        ioctl(node, &mut drm_gem_close { handle, pad: 0 }).unwrap();
    }
    ioctl(node, &mut amdxdna_drm_destroy_hwctx { handle: context.handle, pad: 0 }).unwrap();
}

fn completions() -> Vec<Completion> {
    let completion = |unit, instructions, instruction_words, arguments: &[u32]| Completion {
        unit,
        instructions,
        instruction_words,
        arguments: arguments.to_vec(),
    };
    let arguments = [0x1000, 0x7f00, 0x2000, 0x7f00, 0x21, 0x22];
    vec![completion(31, 0x5_0400_0000, 0x12, &[]), completion(4, 0x0500_0040, 0x13, &arguments)]
}

#[test]
fn a_rehearsed_doorbell_is_answered_and_completed() {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let mut buffers = command_buffers(5);
    for _ in 0..3 {
        let rung = gate().ring(&mut buffers, None, completions(), LIMIT, || doorbell(&node, 2, Change::None));
        assert_eq!(rung, Ok(()));
        assert_eq!(buffers.free.len(), 5);
        // They are taken from the end: two commands and the chain.
        let [.., first, second, list] = buffers.free.as_slice() else { panic!("five buffers") };
        assert_eq!((first.word(start_cu::CU_MASK), second.word(start_cu::CU_MASK)), (1 << 31, 1 << 4));
        let instructions = |b: &CommandBuffer| [b.word(start_cu::INSTRUCTIONS), b.word(start_cu::INSTRUCTIONS + 1)];
        assert_eq!((instructions(first), instructions(second)), ([0x0400_0000, 5], [0x0500_0040, 0]));
        assert_eq!([first, second].map(|command| command.word(start_cu::INSTRUCTION_WORDS)), [0x12, 0x13]);
        assert_eq!([7, 8, 9, 10, 11, 12].map(|index| second.word(index)), [0x1000, 0x7f00, 0x2000, 0x7f00, 0x21, 0x22]);
        assert_eq!((list.word(chain::COMMAND_COUNT), list.word(chain::ERROR_INDEX)), (2, UNTOUCHED));
        // Payloads of 5 and 11 words have a word of padding, and the mask counts too.
        assert_eq!([first, second].map(|command| ert::count_of(command.word(0))), [7, 13]);
        assert_eq!([first.word(7), second.word(13)], [0, 0]);
    }
    // Outside a doorbell nothing is answered.
    assert!(ioctl(&node, &mut amdxdna_drm_create_hwctx::default()).is_err());
}

#[rstest]
#[case(Change::TwoCommands, "EXEC_CMD with 2 commands, expected 1 chain")]
#[case(Change::UnknownChain, "EXEC_CMD of a buffer that is no command buffer")]
#[case(Change::NoChain, "a command with opcode 0, expected a chain")]
#[case(Change::WrongCount, "a chain of 3 commands, expected 2")]
#[case(Change::UnknownCommand, "command 0 is in an unknown buffer")]
#[case(Change::TwoUnits, "command 0 names compute units 0x3")]
#[case(Change::NoUnit, "command 0 names compute units 0x0")]
#[case(Change::NoExecute, "the doorbell reached no EXEC_CMD")]
#[case(Change::NoWait, "the doorbell did not wait for its command")]
fn a_doorbell_that_is_not_as_known_is_refused(#[case] change: Change, #[case] reason: &str) {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let mut buffers = command_buffers(3);
    let rung = gate().ring(&mut buffers, None, completions(), LIMIT, || doorbell(&node, 2, change));
    assert_eq!(rung, Err(Problem::Unexpected(reason.into())));
    assert_eq!(buffers.free.len(), 3);
    // The next one is not touched by it.
    let rung = gate().ring(&mut buffers, None, completions(), LIMIT, || doorbell(&node, 2, Change::None));
    assert_eq!(rung, Ok(()));
}

#[test]
fn a_doorbell_without_buffers_is_not_rung() {
    let mut buffers = command_buffers(2);
    let rung = new_gate().ring(&mut buffers, None, completions(), LIMIT, || panic!("it is rung"));
    assert_eq!(rung, Err(Problem::Unexpected("command buffers were not reserved".into())));
}

/// ROCR would end the process if it met the error.
#[test]
fn an_error_of_the_kernel_reaches_the_caller_and_not_rocr() {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let mut buffers = command_buffers(3);
    // `doorbell` fails the test when one of its calls does.
    let rung = gate().ring(&mut buffers, Some(CONTEXT), completions(), LIMIT, || doorbell(&node, 2, Change::None));
    assert_eq!(rung, Err(Problem::Call { name: "EXEC_CMD", errno: libc::ENOTTY }));
    assert_eq!(rung.unwrap_err().to_string(), "EXEC_CMD: Inappropriate ioctl for device (os error 25)");
    // Nothing was waited for, and that alone is a problem when it fails.
    let mut ringing = Ringing {
        buffers: Vec::new(),
        taken: 0,
        context: Some(CONTEXT),
        completions: Vec::new(),
        limit: LIMIT,
        since: Instant::now(),
        running: Some((1, 0)),
        executed: true,
        waited: false,
        problem: None,
    };
    ringing.wait(gate());
    assert_eq!(ringing.problem, Some(Problem::Call { name: "WAIT_CMD", errno: libc::ENOTTY }));
    assert!(ringing.running.is_some(), "the device may still work on it");
    let timeline = (HardwareContext { handle: 5, timeline: 9 }, Way::Timeline);
    let mut ringing = Ringing { context: Some(timeline), problem: None, ..ringing };
    ringing.wait(gate());
    assert_eq!(ringing.problem, Some(Problem::Call { name: "SYNCOBJ_TIMELINE_WAIT", errno: libc::ENOTTY }));
}

#[test]
fn buffers_of_a_chain_that_may_still_run_are_kept_until_its_context_is_gone() {
    let _one = ONE_AT_A_TIME.lock();
    let _node = node();
    let mut buffers = command_buffers(4);
    let other = HardwareContext { handle: 6, timeline: 0 };
    let fail = || {
        with_activity(|activity| {
            let Activity::Ringing(ringing) = activity else { panic!("no doorbell") };
            (ringing.executed, ringing.waited, ringing.running) = (true, true, Some((1, 0)));
            ringing.problem(Problem::Stuck(LIMIT));
        });
    };
    assert_eq!(gate().ring(&mut buffers, Some(CONTEXT), completions(), LIMIT, fail), Err(Problem::Stuck(LIMIT)));
    assert_eq!((buffers.free.len(), buffers.held.len()), (1, 3));
    assert!(buffers.is_held(CONTEXT.0) && !buffers.is_held(other));
    // The node is none, so no context can be destroyed.
    gate().destroy_context(&mut buffers, CONTEXT.0).unwrap_err();
    assert_eq!(buffers.held.len(), 3);
    buffers.context_is_gone(other);
    assert_eq!(buffers.held.len(), 3);
    buffers.context_is_gone(CONTEXT.0);
    assert_eq!((buffers.free.len(), buffers.held.len()), (4, 0));
}

#[test]
fn a_kernel_without_a_way_to_wait_is_seen() {
    let _one = ONE_AT_A_TIME.lock();
    let _node = node();
    let missing = |timeline: u32| gate().has_timeline(HardwareContext { handle: 5, timeline }).unwrap_err();
    assert_eq!(missing(0), "a context has no timeline");
    assert!(missing(9).starts_with("SYNCOBJ_QUERY: "), "{}", missing(9));
    // The trial itself is refused by what is no device.
    let mut buffers = command_buffers(2);
    let found = gate().way_to_wait(&mut buffers, CONTEXT.0, 0x400_0000, 4, LIMIT);
    assert!(found.unwrap_err().starts_with("EXEC_CMD: "));
    let [(_, command), (_, list)] = buffers.held.as_slice() else { panic!("two buffers") };
    assert_eq!((ert::count_of(command.word(0)), command.word(start_cu::CU_MASK)), (7, 1));
    assert_eq!([2, 3, 4, 5, 6, 7].map(|word| command.word(word)), [3, 0, 0x400_0000, 0, 4, 0]);
    assert_eq!((ert::count_of(list.word(0)), list.word(chain::ERROR_INDEX)), (8, UNTOUCHED));
    assert_eq!(list.word(chain::HANDLES), command.handle);
}

#[rstest]
#[case::completed(state::COMPLETED, UNTOUCHED, None)]
#[case::status_of_four_bits(state::COMPLETED, 1, Some((state::COMPLETED, Some(1))))]
#[case::failed(state::ERROR, 0, Some((state::ERROR, Some(0))))]
#[case::nobody_says_which(state::TIMEOUT, UNTOUCHED, Some((state::TIMEOUT, None)))]
fn completed_is_believed_only_with_an_untouched_index(
    #[case] ended: u32,
    #[case] index: u32,
    #[case] expected: Option<(u32, Option<usize>)>,
) {
    let buffers = command_buffers(1);
    buffers.free[0].set_word(0, ert::header(opcode::CMD_CHAIN, 10) & !ert::STATE_MASK | ended);
    buffers.free[0].set_word(chain::ERROR_INDEX, index);
    let found = buffers.free[0].outcome(2, Duration::ZERO).err();
    let expected = expected.map(|(state, command)| Problem::State { state, command, took: Duration::ZERO });
    assert_eq!(found, expected);
}

fn ended(state: u32, seconds: u64) -> Problem {
    Problem::State { state, command: None, took: Duration::from_secs(seconds) }
}

#[rstest]
#[case::states(ended(state::TIMEOUT, 0), true, false)]
#[case(ended(state::NO_RESPONSE, 0), true, false)]
#[case(ended(state::ERROR, 60), false, false)]
#[case(ended(state::ABORT, 0), false, false)]
#[case::time_limit_of_older_kernels(ended(state::ABORT, 60), true, false)]
#[case(ended(state::COMPLETED, 0), false, false)]
#[case::before_it_runs(Problem::Call { name: "EXEC_CMD", errno: libc::ENOMEM }, false, true)]
#[case::while_it_runs(Problem::Call { name: "WAIT_CMD", errno: libc::ENOMEM }, false, false)]
#[case(Problem::Call { name: "EXEC_CMD", errno: libc::EINVAL }, false, false)]
#[case(Problem::Stuck(LIMIT), true, false)]
fn problems_are_told_apart(#[case] problem: Problem, #[case] timeout: bool, #[case] memory: bool) {
    assert_eq!((problem.is_timeout(), problem.is_out_of_memory()), (timeout, memory));
}

#[rstest]
#[case::large(AMDXDNA_BO_CMD, 2 * PAGE as u64)]
#[case::of_another_kind(1, 64)]
fn other_buffers_of_a_doorbell_pass(#[case] kind: u32, #[case] size: u64) {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let mut buffers = command_buffers(3);
    let mut answer = None;
    let ring = || {
        answer = Some(ioctl(&node, &mut amdxdna_drm_create_bo { size, type_: kind, ..Default::default() }).is_ok());
        doorbell(&node, 2, Change::None);
    };
    assert_eq!(gate().ring(&mut buffers, None, completions(), LIMIT, ring), Ok(()));
    assert_eq!(answer, Some(false), "the kernel is asked, and refuses");
}

#[test]
fn a_thread_without_an_activity_passes_through() {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let passes = |error: io::Result<()>| assert_eq!(error.unwrap_err().raw_os_error(), Some(libc::ENOTTY));
    passes(ioctl(&node, &mut amdxdna_drm_create_hwctx::default()));
    passes(ioctl(&node, &mut amdxdna_drm_config_hwctx::default()));
    passes(ioctl(&node, &mut amdxdna_drm_create_bo { type_: AMDXDNA_BO_CMD, size: 64, ..Default::default() }));
    passes(ioctl(&node, &mut amdxdna_drm_get_bo_info::default()));
    passes(ioctl(&node, &mut amdxdna_drm_exec_cmd::default()));
    passes(ioctl(&node, &mut amdxdna_drm_wait_cmd::default()));
    // ROCR ends the process when this fails, so it does not hear of it; on another descriptor it does.
    ioctl(&node, &mut drm_gem_close::default()).unwrap();
    let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
    passes(ioctl(&other, &mut drm_gem_close::default()));
    passes(ioctl(&node, &mut amdxdna_drm_destroy_hwctx { handle: 3, pad: 0 }));
    // ROCR destroys the imagined context when its queue goes.
    ioctl(&node, &mut amdxdna_drm_destroy_hwctx { handle: IMAGINED_CONTEXT, pad: 0 }).unwrap();
    let address = mmap(&node, PAGE, 0);
    assert_ne!(address, libc::MAP_FAILED);
    munmap(address, PAGE);
    assert!(!is_mapped(address));
    // Another thread rings meanwhile, and this one still passes.
    let mut buffers = command_buffers(3);
    let other = || {
        std::thread::scope(|scope| scope.spawn(|| ioctl(&node, &mut amdxdna_drm_exec_cmd::default())).join().unwrap())
    };
    let ring = || {
        passes(other());
        doorbell(&node, 2, Change::None);
    };
    assert_eq!(gate().ring(&mut buffers, None, completions(), LIMIT, ring), Ok(()));
}

fn is_mapped(address: *mut c_void) -> bool {
    let mut residency = 0_u8;
    // SAFETY: only looks; the vector has room for the one page.
    unsafe { libc::mincore(address, PAGE, &raw mut residency) == 0 }
}

/// Addresses of four pages without access, as an arena keeps them.
fn reserve() -> Range<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the kernel chooses free addresses.
    let address = unsafe { libc::mmap(std::ptr::null_mut(), 4 * PAGE, libc::PROT_NONE, flags, -1, 0) };
    assert_ne!(address, libc::MAP_FAILED);
    address.expose_provenance()..address.expose_provenance() + 4 * PAGE
}

#[test]
fn a_buffer_is_mapped_in_its_place_and_never_leaves_a_hole() {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let range = reserve();
    let place = range.start + PAGE..range.start + 3 * PAGE;
    // An allocation that maps, and then fails and takes its mapping back.
    let (second, observed) = gate().observe(Some(place.clone()), || {
        let first = mmap(&node, 2 * PAGE, 0);
        assert_eq!(first.addr(), place.start);
        let second = mmap(&node, PAGE, 0);
        munmap(first, 2 * PAGE);
        assert!(is_mapped(first), "or somebody else's memory could come to lie there");
        second
    });
    assert_eq!(observed, Observed { buffer: None, unmapped: true });
    assert!(!range.contains(&second.addr()), "there is one mapping in a place");
    munmap(second, PAGE);
    assert!(!is_mapped(second));
    // A release.
    let first = std::ptr::with_exposed_provenance_mut(place.start);
    let ((), observed) = gate().observe(Some(place.clone()), || munmap(first, 2 * PAGE));
    assert!(observed.unmapped && is_mapped(first));
    // Without a place, it is one like any other.
    munmap(first, 2 * PAGE);
    assert!(!is_mapped(first));
}

#[rstest]
#[case::of_another_file(false, PAGE)]
#[case::larger_than_the_place(true, 2 * PAGE)]
fn what_does_not_belong_into_a_place_lies_elsewhere(#[case] of_the_node: bool, #[case] bytes: usize) {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let other = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&other, FILE_BYTES as u64).unwrap();
    let range = reserve();
    let place = range.start..range.start + PAGE;
    let (address, _) = gate().observe(Some(place), || mmap(if of_the_node { &node } else { &other }, bytes, 0));
    assert_ne!(address, libc::MAP_FAILED);
    assert!(!range.contains(&address.addr()));
    munmap(address, bytes);
}

#[test]
fn the_descriptor_is_the_one_of_the_last_request_to_the_node() {
    let _one = ONE_AT_A_TIME.lock();
    let first = node();
    let second = memfd_create("second", MemfdFlags::CLOEXEC).unwrap();
    let known = || gate().descriptor.load(Ordering::Relaxed);
    // Closing a buffer is a request that every DRM device has, and KFD's are not DRM's.
    ioctl(&second, &mut drm_gem_close::default()).unwrap_err();
    // SAFETY: KFD's question for its version; a file that is no device refuses it before it looks at the argument.
    unsafe { hooks::ioctl(second.as_raw_fd(), 0x8008_4b01, std::ptr::null_mut()) };
    assert_eq!(known(), first.as_raw_fd());
    gate().imagined.lock().push(9);
    ioctl(&second, &mut amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_AIE_METADATA, ..Default::default() })
        .unwrap_err();
    assert_eq!((known(), gate().imagined.lock().len()), (second.as_raw_fd(), 1));
    // ROCR asks for the version first when it opens the node: what was on an earlier descriptor is gone.
    ioctl(&second, &mut amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_AIE_VERSION, ..Default::default() })
        .unwrap_err();
    assert_eq!(gate().imagined.lock().len(), 0);
    gate().forget_descriptor();
    assert_eq!(known(), -1);
    assert_eq!(Call::of(amdxdna_drm_get_info::CODE.0.into()), Some(Call::GetInfo));
}

#[test]
fn the_device_address_of_an_allocation_is_the_kernel_drivers_to_tell() {
    let _one = ONE_AT_A_TIME.lock();
    let _node = node();
    let host = NonNull::from(&mut [0_u8; 8]).cast();
    let address = |buffer| gate().device_address(Observed { buffer, unmapped: false }, host);
    assert_eq!(address(None).unwrap_err().to_string(), "an allocation made no buffer");
    // The node is none.
    assert_eq!(address(Some(7)).unwrap_err().raw_os_error(), Some(libc::ENOTTY));
}

#[test]
fn an_imagined_pdi_needs_a_buffer_and_room_in_the_list() {
    let gate = new_gate();
    let mut freed = Vec::new();
    let made = gate.imagine(|| Ok(1), |allocation| freed.push(allocation));
    assert_eq!((made, freed), (Err("an allocation made no buffer".to_owned()), vec![1]));
    let made: Result<(), _> = gate.imagine(|| Err("no memory".to_owned()), |()| panic!("nothing to free"));
    assert_eq!(made, Err("no memory".into()));
    gate.imagined.lock().extend(0..SESSIONS as u32);
    let made: Result<(), _> = gate.imagine(|| panic!("nothing is allocated"), |()| panic!("nothing to free"));
    assert!(made.unwrap_err().contains("31 sessions"));
}

/// Destructors of threads and handlers at the end of the process run when thread-local values with a destructor are gone.
#[test]
fn an_ending_thread_still_passes_the_gate() {
    struct AtEnd(std::sync::mpsc::Sender<bool>);
    impl Drop for AtEnd {
        fn drop(&mut self) {
            self.0.send(ACTIVITY.try_with(|_| ()).is_ok()).unwrap();
        }
    }
    thread_local! {
        static AT_END: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }
    let (sender, alive) = channel();
    let thread = std::thread::spawn(move || {
        // This one's destructor is there before the activity is used for the first time, so it runs after its.
        AT_END.set(Some(AtEnd(sender)));
        new_gate().observe(None, || ());
    });
    thread.join().unwrap();
    assert_eq!(alive.recv(), Ok(true));
}
