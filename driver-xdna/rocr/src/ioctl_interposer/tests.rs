//! The hooks, called by a fake ROCR: the calls of a doorbell in their order, on a descriptor that is not a device's. What
//! passes the interposer fails on it, and so is distinguished from what the interposer answers.

use super::*;
use aie_driver_xdna::accel::bo::device_address_of;
use aie_driver_xdna::accel::call_error::CallError;
use aie_driver_xdna::accel::command_buffer::{CommandBuffer, UNTOUCHED, Words};
use aie_driver_xdna::agent::{Packet, PdiRef};
use amdxdna_sys::ert::{self, chain, opcode, start_cu};
use amdxdna_sys::{
    AMDXDNA_BO_CMD, DRM_AMDXDNA_QUERY_AIE_METADATA, DRM_AMDXDNA_QUERY_AIE_VERSION, Request, amdxdna_drm_config_hwctx,
    amdxdna_drm_create_bo, amdxdna_drm_create_hwctx, amdxdna_drm_destroy_hwctx, amdxdna_drm_exec_cmd,
    amdxdna_drm_get_bo_info, amdxdna_drm_get_info, amdxdna_drm_wait_cmd, drm_gem_close,
};
use rstest::rstest;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use std::ffi::c_void;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::mpsc::channel;

/// Bytes of the file behind the fake node.
const FILE_BYTES: usize = 1 << 16;
const PAGE: usize = 4096;
const LIMIT: Duration = Duration::from_secs(5);

const CONTEXT: (HardwareContext, WaitMethod) = (HardwareContext { handle: 5, timeline: 0 }, WaitMethod::WaitCmd);

/// The descriptor of the interposer is the process's: one test at a time uses it.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn new_interposer() -> Interposer {
    Interposer { descriptor: AtomicI32::new(-1), placeholders: Mutex::default() }
}

fn interposer() -> &'static Interposer {
    INTERPOSER.get_or_init(new_interposer)
}

/// A fake node that the interposer takes for ROCR's.
fn node() -> OwnedFd {
    let file = memfd_create("node", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, FILE_BYTES as u64).unwrap();
    interposer().descriptor.store(file.as_raw_fd(), Ordering::Relaxed);
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
    let mut buffers = CommandBuffers::new(Arc::new(interposer().node()));
    let page = |index| {
        let page = NonNull::from(Box::leak(Box::new([u32::MAX; Words::COUNT]))).cast();
        let map_offset = 0x1_0000_0000 + u64::from(index) * PAGE as u64;
        // SAFETY: the page was just leaked.
        unsafe { CommandBuffer::of_test_memory(&buffers.node(), 100 + index, map_offset, page) }
    };
    let pages = (0..count).map(page).collect();
    buffers.put_back(None, pages);
    buffers
}

/// How many are free, and how many are held.
fn counts(buffers: &CommandBuffers) -> (usize, usize) {
    (buffers.free.len(), buffers.held.len())
}

/// How a doorbell of the fake ROCR differs from what is known of the real one.
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
    assert!(word < Words::COUNT);
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
    assert_eq!(context.handle, PLACEHOLDER_CONTEXT);
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

fn dispatches() -> Chain {
    let packet = |pdi_index, instructions, words: usize, arguments| Packet {
        pdi_index,
        pdi: PdiRef { address: 0, bytes: 0 },
        instructions,
        instruction_bytes: 4 * words,
        arguments,
    };
    Chain {
        packets: vec![packet(31, 0x5_0400_0000, 0x12, (0, 0)), packet(4, 0x0500_0040, 0x13, (0, 2))],
        arguments: vec![0x7f00_0000_1000..0x7f00_0000_1021, 0x7f00_0000_2000..0x7f00_0000_2022],
    }
}

#[test]
fn a_rehearsed_doorbell_is_answered_and_completed() {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let mut buffers = command_buffers(5);
    for _ in 0..3 {
        let rung = interposer().ring(&mut buffers, None, dispatches(), LIMIT, || doorbell(&node, 2, Change::None));
        rung.unwrap();
        assert_eq!(counts(&buffers), (5, 0));
        // They are taken from the end: two commands and the chain.
        let [.., first, second, list] = buffers.free.as_slice() else { panic!("five buffers") };
        assert_eq!((first.words().get(start_cu::CU_MASK), second.words().get(start_cu::CU_MASK)), (1 << 31, 1 << 4));
        let instructions =
            |b: &CommandBuffer| [b.words().get(start_cu::INSTRUCTIONS), b.words().get(start_cu::INSTRUCTIONS + 1)];
        assert_eq!((instructions(first), instructions(second)), ([0x0400_0000, 5], [0x0500_0040, 0]));
        assert_eq!([first, second].map(|command| command.words().get(start_cu::INSTRUCTION_WORDS)), [0x12, 0x13]);
        assert_eq!(
            [7, 8, 9, 10, 11, 12].map(|index| second.words().get(index)),
            [0x1000, 0x7f00, 0x2000, 0x7f00, 0x21, 0x22]
        );
        assert_eq!((list.words().get(chain::COMMAND_COUNT), list.words().get(chain::ERROR_INDEX)), (2, UNTOUCHED));
        // Payloads of 5 and 11 words have a word of padding, and the mask counts too.
        assert_eq!([first, second].map(|command| ert::count_of(command.words().get(0))), [7, 13]);
        assert_eq!([first.words().get(7), second.words().get(13)], [0, 0]);
    }
    // Outside a doorbell nothing is answered.
    assert!(ioctl(&node, &mut amdxdna_drm_create_hwctx::default()).is_err());
}

#[rstest]
#[case(Change::TwoCommands, "EXEC_CMD with 2 commands, expected 1 chain")]
#[case(Change::UnknownChain, "EXEC_CMD of a buffer that is not a command buffer")]
#[case(Change::NoChain, "a command with opcode 0, expected a chain")]
#[case(Change::WrongCount, "a chain of 3 commands, expected 2")]
#[case(Change::UnknownCommand, "command 0 is in an unknown buffer")]
#[case(Change::TwoUnits, "command 0 names compute units 0x3")]
#[case(Change::NoUnit, "command 0 names compute units 0x0")]
#[case(Change::NoExecute, "the doorbell reached no EXEC_CMD")]
#[case(Change::NoWait, "the doorbell did not wait for its command")]
fn a_doorbell_that_is_not_as_known_is_rejected(#[case] change: Change, #[case] reason: &str) {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let mut buffers = command_buffers(3);
    let rung = interposer().ring(&mut buffers, None, dispatches(), LIMIT, || doorbell(&node, 2, change));
    assert!(matches!(rung, Err(ChainError::Unexpected(text)) if text == reason));
    assert_eq!(counts(&buffers), (3, 0));
    // The next one is not touched by it.
    let rung = interposer().ring(&mut buffers, None, dispatches(), LIMIT, || doorbell(&node, 2, Change::None));
    rung.unwrap();
}

#[test]
fn a_doorbell_without_buffers_is_not_rung() {
    let mut buffers = command_buffers(2);
    let rung = new_interposer().ring(&mut buffers, None, dispatches(), LIMIT, || panic!("it is rung"));
    assert_eq!(rung.unwrap_err().to_string(), "command buffers were not reserved");
}

/// ROCR would end the process if it met the error.
#[test]
fn an_error_of_the_kernel_reaches_the_caller_and_not_rocr() {
    let _one = ONE_AT_A_TIME.lock();
    let node = node();
    let mut buffers = command_buffers(3);
    // `doorbell` fails the test when one of its calls does.
    let rung = interposer().ring(&mut buffers, Some(CONTEXT), dispatches(), LIMIT, || doorbell(&node, 2, Change::None));
    assert_eq!(rung.unwrap_err().to_string(), "EXEC_CMD: Inappropriate ioctl for device (os error 25)");
    // Nothing was waited for, and that alone is a problem when it fails.
    let mut ringing = Ringing {
        node: buffers.node(),
        buffers: Vec::new(),
        taken: 0,
        context: Some(CONTEXT),
        dispatches: Chain::default(),
        limit: LIMIT,
        since: Instant::now(),
        running: Some((1, 0)),
        executed: true,
        waited: false,
        problem: None,
    };
    ringing.wait();
    let call = |ringing: &Ringing| match &ringing.problem {
        Some(ChainError::Call(CallError { call, cause })) => (*call, cause.raw_os_error()),
        other => panic!("{other:?}"),
    };
    assert_eq!(call(&ringing), ("WAIT_CMD", Some(libc::ENOTTY)));
    assert!(ringing.running.is_some(), "the device may still work on it");
    let timeline = (HardwareContext { handle: 5, timeline: 9 }, WaitMethod::Timeline);
    let mut ringing = Ringing { context: Some(timeline), problem: None, ..ringing };
    ringing.wait();
    assert_eq!(call(&ringing), ("SYNCOBJ_TIMELINE_WAIT", Some(libc::ENOTTY)));
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
            ringing.problem(ChainError::Stuck(LIMIT));
        });
    };
    let rung = interposer().ring(&mut buffers, Some(CONTEXT), dispatches(), LIMIT, fail);
    assert!(matches!(rung, Err(ChainError::Stuck(LIMIT))), "{rung:?}");
    assert_eq!(counts(&buffers), (1, 3));
    assert!(buffers.is_held(CONTEXT.0) && !buffers.is_held(other));
    // The node is none, so no context can be destroyed.
    CONTEXT.0.destroy(&buffers.node()).unwrap_err();
    buffers.context_is_gone(other);
    assert_eq!(buffers.held.len(), 3);
    buffers.context_is_gone(CONTEXT.0);
    assert_eq!(counts(&buffers), (4, 0));
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
    interposer().ring(&mut buffers, None, dispatches(), LIMIT, ring).unwrap();
    assert_eq!(answer, Some(false), "the kernel is asked, and rejects");
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
    // ROCR destroys the placeholder context when its queue goes.
    ioctl(&node, &mut amdxdna_drm_destroy_hwctx { handle: PLACEHOLDER_CONTEXT, pad: 0 }).unwrap();
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
    interposer().ring(&mut buffers, None, dispatches(), LIMIT, ring).unwrap();
}

fn is_mapped(address: *mut c_void) -> bool {
    let mut residency = 0_u8;
    // SAFETY: only looks; the vector has room for the one page.
    unsafe { libc::mincore(address, PAGE, &raw mut residency) == 0 }
}

/// Addresses of four pages without access, as for data memory.
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
    let (second, observed) = interposer().observe(Some(place.clone()), || {
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
    let ((), observed) = interposer().observe(Some(place.clone()), || munmap(first, 2 * PAGE));
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
    let (address, _) = interposer().observe(Some(place), || mmap(if of_the_node { &node } else { &other }, bytes, 0));
    assert_ne!(address, libc::MAP_FAILED);
    assert!(!range.contains(&address.addr()));
    munmap(address, bytes);
}

#[test]
fn the_descriptor_is_the_one_of_the_last_request_to_the_node() {
    let _one = ONE_AT_A_TIME.lock();
    let first = node();
    let second = memfd_create("second", MemfdFlags::CLOEXEC).unwrap();
    let known = || interposer().descriptor.load(Ordering::Relaxed);
    // Closing a buffer is a request that every DRM device has, and KFD's are not DRM's.
    ioctl(&second, &mut drm_gem_close::default()).unwrap_err();
    // SAFETY: KFD's question for its version; a file that is not a device rejects it before it looks at the argument.
    unsafe { hooks::ioctl(second.as_raw_fd(), 0x8008_4b01, std::ptr::null_mut()) };
    assert_eq!(known(), first.as_raw_fd());
    interposer().placeholders.lock().push(9);
    ioctl(&second, &mut amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_AIE_METADATA, ..Default::default() })
        .unwrap_err();
    assert_eq!((known(), interposer().placeholders.lock().len()), (second.as_raw_fd(), 1));
    // ROCR asks for the version first when it opens the node: what was on an earlier descriptor is gone.
    ioctl(&second, &mut amdxdna_drm_get_info { param: DRM_AMDXDNA_QUERY_AIE_VERSION, ..Default::default() })
        .unwrap_err();
    assert_eq!(interposer().placeholders.lock().len(), 0);
    interposer().forget_descriptor();
    assert_eq!(known(), -1);
}

#[test]
fn the_device_address_of_a_buffer_is_the_kernel_drivers_to_tell() {
    let _one = ONE_AT_A_TIME.lock();
    let _node = node();
    let error = device_address_of(&interposer().node(), 7, NonNull::from(&mut [0_u8; 8]).cast()).unwrap_err();
    // The node is none.
    assert_eq!((error.call, error.errno()), ("GET_BO_INFO", libc::ENOTTY));
}

#[test]
fn a_placeholder_pdi_needs_a_buffer_and_room_in_the_list() {
    let interposer = new_interposer();
    let mut freed = Vec::new();
    let made = interposer.allocate_placeholder(|| Ok(1), |allocation| freed.push(allocation));
    assert_eq!((made, freed), (Err(AgentError::failed("an allocation made no buffer")), vec![1]));
    let no_memory = AgentError::OutOfMemory("no memory".into());
    let made: Result<(), _> =
        interposer.allocate_placeholder(|| Err(no_memory.clone()), |()| panic!("nothing to free"));
    assert_eq!(made, Err(no_memory));
    interposer.placeholders.lock().extend(0..SESSIONS as u32);
    let made: Result<(), _> =
        interposer.allocate_placeholder(|| panic!("nothing is allocated"), |()| panic!("nothing to free"));
    assert!(made.unwrap_err().to_string().contains("31 sessions"));
}

/// Destructors of threads and handlers at the end of the process run when thread-local values with a destructor are gone.
#[test]
fn an_ending_thread_still_passes_the_interposer() {
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
        new_interposer().observe(None, || ());
    });
    thread.join().unwrap();
    assert_eq!(alive.recv(), Ok(true));
}
