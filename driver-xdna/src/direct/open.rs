//! Opening an NPU: everything a dispatch relies on is probed.
//!
//! Kernels differ in what they have, and their version does not say (distributions take patches back). So opening tries: how
//! addresses of data buffers relate to pointers, which way of waiting works, whether files that are mapped for reading can be
//! used in place. It ends with one real round trip, a kernel that configures nothing and has no instructions: what would fail at
//! the first dispatch fails here, with the reason. An NPU that is only looked at is asked the rest: neither a context nor the device
//! heap is made before something needs them, and then the round trip comes first.

use super::in_flight::Ended;
use super::{DirectAgent, Ready, State};
use crate::accel::bo::{Bo, BoKind};
use crate::accel::call_error::CallError;
use crate::accel::command_buffer::CommandBuffer;
use crate::accel::context::{HardwareContext, is_exhausted};
use crate::accel::device::AccelDevice;
use crate::accel::holders::why_exhausted;
use crate::accel::node::{Mapping, Node};
use crate::accel::probe::{NopKernel, PROBE_LIMIT, Probed, find_wait_method, nop_packet};
use crate::accel::recorder::Recorder;
use crate::agent::{Agent, AgentError, AgentInfo, AgentStatus};
use crate::npu::OpenNpu;
use crate::pinnable::pinnable_bytes;
use aie_device_memory::Region;
use aie_hal::Arch;
use aie_hal::error::Remedy;
use aie_hal::format::instructions::Header;
use amdxdna_sys::limits::{DEV_MEM_SIZE, PAGE};
use amdxdna_sys::recording::{RecordedCall, WRITE};
use amdxdna_sys::{
    AMDXDNA_INVALID_ADDR, DRM_AMDXDNA_GET_POWER_MODE, DRM_AMDXDNA_QUERY_AIE_VERSION, DRM_AMDXDNA_QUERY_CLOCK_METADATA,
    DRM_AMDXDNA_QUERY_FIRMWARE_VERSION, DRM_AMDXDNA_QUERY_RESOURCE_INFO, amdxdna_drm_get_power_mode,
    amdxdna_drm_get_resource_info, amdxdna_drm_query_aie_version, amdxdna_drm_query_clock_metadata,
    amdxdna_drm_query_firmware_version, drm_version,
};
use parking_lot::Mutex;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// The name by which the kernel driver introduces itself.
const DRIVER: &[u8] = b"amdxdna";

/// Opens the NPU of generation `arch` behind the accel node at `path`. `limit` is how long a chain may take.
///
/// # Errors
/// [`AgentError::Unusable`] and [`AgentError::Unsupported`] when the kernel lacks something, with what was tried and which setting to
/// look at;
/// [`AgentError::ContextsExhausted`] when another program has all of the NPU; [`AgentError::OutOfMemory`], [`AgentError::Lost`].
pub fn open(path: &Path, arch: &Arch, limit: Duration) -> Result<DirectAgent, AgentError> {
    let node = Node::open(path).map_err(|cause| rejected_open(path, &cause))?;
    agent(Arc::new(node), arch, limit, Opening::Ready)
}

/// How far an NPU is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    /// With a round trip.
    Ready,
    /// Without heap and context.
    Look,
}

/// Opens the NPU as [`open`] does, asks what else it says of itself, and closes it. What became of it, and all calls of the kernel: of
/// contents there are those of the empty kernel only.
pub fn record(path: &Path, arch: &Arch) -> (Result<AgentInfo, AgentError>, Vec<RecordedCall>) {
    let recorder = Recorder::default();
    let outcome = match Node::recorded(path, Some(recorder.clone())) {
        Ok(node) => {
            let node = Arc::new(node);
            // What a kernel does not answer is recorded too.
            let _ = node.query::<amdxdna_drm_query_aie_version>(DRM_AMDXDNA_QUERY_AIE_VERSION);
            let _ = node.query::<amdxdna_drm_query_clock_metadata>(DRM_AMDXDNA_QUERY_CLOCK_METADATA);
            let _ = node.query::<amdxdna_drm_get_power_mode>(DRM_AMDXDNA_GET_POWER_MODE);
            let _ = node.query::<amdxdna_drm_get_resource_info>(DRM_AMDXDNA_QUERY_RESOURCE_INFO);
            agent(node, arch, PROBE_LIMIT, Opening::Ready).map(|agent| agent.info().clone())
        }
        Err(cause) => Err(rejected_open(path, &cause)),
    };
    (outcome, recorder.calls())
}

/// The NPU behind an open node.
fn agent(node: Arc<Node>, arch: &Arch, limit: Duration, opening: Opening) -> Result<DirectAgent, AgentError> {
    let path = node.path().to_owned();
    let version = check_driver(&node)?;
    let tiles = node.core_tiles(arch.array.columns).map_err(|cause| lost(&node, "the array's shape", &cause))?;
    let heap = (opening == Opening::Ready).then(|| device_heap(&node)).transpose()?;
    check_addresses(&node)?;
    let header = arch.stream_header(1);
    let ready = heap.map(|heap| probed(&node, header, tiles, heap, limit)).transpose()?;
    let waits = ready.as_ref().map_or_else(String::new, |Ready { wait_method, failure, .. }| {
        let failure = failure.as_ref().map(|cause| format!(", whose test dispatch failed: {cause}"));
        format!(", waits by {wait_method}{}", failure.unwrap_or_default())
    });
    let info = AgentInfo {
        name: arch.name.clone(),
        library: path.clone(),
        runtime: format!("amdxdna kernel driver{}{waits}", firmware(&node)),
        streams_apart: false,
        data_bytes: memory_bytes(),
        data_granule: PAGE,
        heap_bytes: DEV_MEM_SIZE,
    };
    let state = State {
        contexts: HashMap::new(),
        next_context: 0,
        next_chain: 0,
        ended: Ended::default(),
        free: Vec::new(),
        handles: Vec::new(),
        data: BTreeMap::new(),
        parts: BTreeMap::new(),
        ready,
        closed: false,
    };
    let files_copied = why_files_are_copied(&node, version);
    let files = files_copied.as_deref().unwrap_or("used in place");
    tracing::info!("{}: {}; mapped files: {files}", path.display(), info.runtime);
    let accel = AccelDevice { node, status: AgentStatus::new(info), tiles, limit };
    Ok(DirectAgent { accel, header, files_copied, state: Mutex::new(state) })
}

/// Makes what contexts need.
pub(super) fn ready(node: &Arc<Node>, header: Header, tiles: u32, limit: Duration) -> Result<Ready, AgentError> {
    probed(node, header, tiles, device_heap(node)?, limit)
}

fn device_heap(node: &Arc<Node>) -> Result<Bo, AgentError> {
    Bo::create(node, BoKind::Heap, DEV_MEM_SIZE).map_err(|cause| out_of_memory(node, "the device heap", &cause))
}

/// Runs a kernel that does nothing with `heap`.
fn probed(node: &Arc<Node>, header: Header, tiles: u32, heap: Bo, limit: Duration) -> Result<Ready, AgentError> {
    let Probed { wait_method, failure } = round_trip(node, header, tiles, &heap, limit.min(PROBE_LIMIT))?;
    if let Some(cause) = &failure {
        // It may be the firmware's opinion of a kernel that does nothing, and was waited for as it should be.
        let path = node.path().display();
        tracing::warn!("{path}: an NPU whose test dispatch failed: {cause}; it is used all the same");
    }
    Ok(Ready { heap, wait_method, failure })
}

/// The NPUs that are open: one for each accel node, shared by all logical devices on it.
static OPENED: Mutex<Vec<(PathBuf, Weak<OpenNpu>)>> = Mutex::new(Vec::new());

/// The NPU behind the accel node at `path`, opened when it is not.
pub(crate) fn opened(path: &Path, arch: &Arc<Arch>, limit: Duration) -> Result<Arc<OpenNpu>, AgentError> {
    // Held while opening, so that two callers do not both open it.
    let mut opened = OPENED.lock();
    let found = opened.iter().find(|(known, _)| known == path).and_then(|(_, npu)| npu.upgrade());
    if let Some(npu) = found.filter(|npu| npu.array.lost().is_none() && npu.owner.is_current()) {
        return Ok(npu);
    }
    let npu = opened_apart(path, arch, limit)?;
    opened.retain(|(known, npu)| known != path && npu.strong_count() > 0);
    opened.push((path.to_owned(), Arc::downgrade(&npu)));
    Ok(npu)
}

/// The same, opened anew and shared with no one.
pub(crate) fn opened_apart(path: &Path, arch: &Arc<Arch>, limit: Duration) -> Result<Arc<OpenNpu>, AgentError> {
    let agent: Arc<dyn Agent> = Arc::new(open(path, arch, limit)?);
    Ok(OpenNpu::new(agent, Arc::clone(arch), None))
}

/// The same without heap and context before something needs them.
pub(crate) fn looked_at(path: &Path, arch: &Arc<Arch>, limit: Duration) -> Result<Arc<OpenNpu>, AgentError> {
    let node = Node::open(path).map_err(|cause| rejected_open(path, &cause))?;
    let agent: Arc<dyn Agent> = Arc::new(agent(Arc::new(node), arch, limit, Opening::Look)?);
    Ok(OpenNpu::new(agent, Arc::clone(arch), None))
}

fn rejected_open(path: &Path, cause: &std::io::Error) -> AgentError {
    let path = path.display();
    let (reason, remedy) = match cause.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            return AgentError::Unsupported(format!(
                "{path}: {cause}; add the user to the node's group (`ls -l {path}`) and log in again"
            ));
        }
        Some(libc::EMFILE | libc::ENFILE) => (format!("{path}: {cause}; see `ulimit -n`"), Remedy::OpenFiles),
        Some(libc::EBUSY) => (
            format!("{path}: {cause}; another program has it open exclusively (`sudo lsof {path}`)"),
            Remedy::ReleasedByOthers,
        ),
        _ => (
            format!(
                "{path} cannot be opened: {cause}; kernels up to 6.19 open an NPU only where it can use the addresses of processes: \
                 turn the IOMMU on in the firmware setup, and boot without `iommu=off`, `iommu=pt` and `amd_iommu=off` \
                 (`sudo dmesg | grep -e amdxdna -e AMD-Vi` shows more)"
            ),
            Remedy::Iommu,
        ),
    };
    AgentError::Unusable { reason, remedy }
}

/// Any accel node answers DRM's version request; others than amdxdna's must not be sent its requests. Major and minor version of
/// the driver.
fn check_driver(node: &Node) -> Result<(i32, i32), AgentError> {
    let mut name = [0_u8; 64];
    let mut version = drm_version {
        name_len: name.len() as u64,
        name: name.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    node.request(&mut version).map_err(|cause| lost(node, "the kernel driver's name", &cause))?;
    if name.starts_with(DRIVER) {
        return Ok((version.version_major, version.version_minor));
    }
    let length = (version.name_len as usize).min(name.len());
    Err(AgentError::Unsupported(format!(
        "{} belongs to the kernel driver `{}`, not to amdxdna",
        node.path().display(),
        String::from_utf8_lossy(&name[..length])
    )))
}

/// Firmware version for messages; empty when the kernel does not say.
fn firmware(node: &Node) -> String {
    match node.query::<amdxdna_drm_query_firmware_version>(DRM_AMDXDNA_QUERY_FIRMWARE_VERSION) {
        Ok(v) => format!(", firmware {}.{}.{}.{}", v.major, v.minor, v.patch, v.build),
        Err(_) => String::new(),
    }
}

fn memory_bytes() -> u64 {
    // SAFETY: asking for numbers.
    let (pages, page) = unsafe { (libc::sysconf(libc::_SC_PHYS_PAGES), libc::sysconf(libc::_SC_PAGESIZE)) };
    u64::try_from(pages).unwrap_or(0).saturating_mul(u64::try_from(page).unwrap_or(0))
}

fn lost(node: &Node, what: &str, cause: &CallError) -> AgentError {
    let path = node.path().display();
    AgentError::Lost(format!("{path}: {what}: {cause}; `sudo dmesg | grep amdxdna` may show more"))
}

fn out_of_memory(node: &Node, what: &str, cause: &CallError) -> AgentError {
    if cause.is_lost() {
        return lost(node, what, cause);
    }
    let path = node.path().display();
    AgentError::OutOfMemory(format!("{path}: {what}: {cause}; memory for an NPU is locked: see `ulimit -l`"))
}

/// The device has to see a data buffer at the address that this driver will name.
fn check_addresses(node: &Arc<Node>) -> Result<(), AgentError> {
    let bo = Bo::create(node, BoKind::Data, PAGE).map_err(|cause| out_of_memory(node, "a data buffer", &cause))?;
    let confirmed = bo.confirmed_address().map_err(|cause| lost(node, "the address of a data buffer", &cause))?;
    if confirmed == bo.device_address() {
        if confirmed != bo.host().as_ptr().addr() as u64 {
            tracing::info!(
                "{}: the NPU sees data at other addresses than this process (amdxdna's parameter force_iova, or a carve-out)",
                node.path().display()
            );
        }
        return Ok(());
    }
    let given = match confirmed {
        0 | AMDXDNA_INVALID_ADDR => "none".to_owned(),
        address => format!("{address:#x}"),
    };
    let reason = format!(
        "{}: the kernel driver gives a data buffer at {:p} the device address {given}, which is neither that pointer nor an address \
         known beforehand; turn the IOMMU on in the firmware setup and boot without `iommu=pt`, or load amdxdna with \
         `force_iova=1` where the kernel has that parameter (Linux 7.0 and later)",
        node.path().display(),
        bo.host()
    );
    Err(AgentError::Unusable { reason, remedy: Remedy::Iommu })
}

/// Runs a kernel that does nothing, and finds out how to wait for it. How it ended does not matter: that it can be waited for does.
fn round_trip(node: &Arc<Node>, header: Header, tiles: u32, heap: &Bo, limit: Duration) -> Result<Probed, AgentError> {
    let path = node.path().display();
    let unsupported = |reason: String| AgentError::Unsupported(format!("{path}: {reason}"));
    let NopKernel { pdi, instructions } = NopKernel::new(header)?;
    let upload = |bytes: &[u8]| {
        let bo = Bo::create(node, BoKind::HeapPart(heap), bytes.len())
            .map_err(|cause| out_of_memory(node, "a part of the device heap", &cause))?;
        // SAFETY: the part is as long and mapped for reading and writing as long as the heap is, which outlives this region.
        let region = unsafe { Region::mapped(bo.host(), bytes.len(), Arc::new(())) };
        if let Some(span) = region.writable(0, bytes.len()) {
            span.write(bytes);
            span.write_back();
        }
        node.note_contents(WRITE, bo.handle(), || bytes.to_vec());
        Ok::<Bo, AgentError>(bo)
    };
    let (pdi, stream) = (upload(&pdi)?, upload(&instructions)?);
    let buffer = || CommandBuffer::create(node).map_err(|cause| unsupported(format!("a test command buffer: {cause}")));
    let (command, chain) = (buffer()?, buffer()?);
    let context = HardwareContext::create(node, tiles, &[pdi.handle()]).map_err(|cause| {
        if is_exhausted(&cause) {
            // Drivers that have given up on their NPU use the same error.
            let given_up = if cause.errno() == libc::ENODEV {
                ". Or the driver has given up on it, which `dmesg` shows"
            } else {
                ""
            };
            let (why, remedy) = why_exhausted(node, 0);
            let reason = format!(
                "{path}: the kernel driver grants no hardware context of {tiles} tiles ({cause}): {why}{given_up}"
            );
            return AgentError::ContextsExhausted { reason, remedy };
        }
        unsupported(format!("a test context: {cause}"))
    })?;
    let packet = nop_packet(stream.device_address(), instructions.len());
    let found = find_wait_method(node, context, [&command, &chain], &packet, limit);
    let destroyed = context.destroy(node);
    match found {
        Ok(probed) => {
            destroyed.map_err(|cause| lost(node, "the test context", &cause))?;
            Ok(probed)
        }
        Err(cause) => {
            // While the context exists the device may still read them.
            if destroyed.is_err() {
                [command, chain].into_iter().for_each(CommandBuffer::leak);
            }
            Err(cause.of_agent(format!("{path}: {cause}")))
        }
    }
}

/// The newest version of mainline's driver that is known to pin only what may be written.
const LAST_WITHOUT_READ_ONLY: (i32, i32) = (0, 10);

/// Why files that are mapped for reading, as llama.cpp maps models, are not used in place; `None` when they are.
///
/// Mainline up to Linux 7.3 cannot pin memory that may only be read, and writes an error into the kernel's log for every attempt; AMD's
/// own module (1.x) can since 2026-03. One page, which is what is tried, promises nothing for a model, and llama.cpp gives up on a
/// model that was to be used in place and cannot be: so as much as there is memory has to be allowed.
fn why_files_are_copied(node: &Arc<Node>, version: (i32, i32)) -> Option<String> {
    if version <= LAST_WITHOUT_READ_ONLY {
        return Some("this kernel driver pins only memory that may be written".to_owned());
    }
    if let Some(limit) = pinnable_bytes().filter(|limit| *limit < memory_bytes()) {
        return Some(format!("of a program's own memory {limit} bytes may be pinned (`ulimit -l`)"));
    }
    let mapping = match File::open("/proc/self/exe").and_then(|file| Mapping::of_file(&file, PAGE)) {
        Ok(mapping) => mapping,
        Err(cause) => return Some(format!("no file could be mapped to try it: {cause}")),
    };
    // SAFETY: the mapping lives longer than the buffer object, which is dropped at once.
    let tried = unsafe { Bo::of_user_memory(node, mapping.address(), PAGE) };
    tried.err().map(|cause| format!("the kernel driver refuses a page of a mapped file: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case::permission(libc::EACCES, None)]
    #[case::descriptors(libc::EMFILE, Some(Remedy::OpenFiles))]
    #[case::held(libc::EBUSY, Some(Remedy::ReleasedByOthers))]
    #[case::addresses(libc::EINVAL, Some(Remedy::Iommu))]
    fn what_the_system_rejects_has_a_remedy(#[case] errno: i32, #[case] remedy: Option<Remedy>) {
        let cause = rejected_open(Path::new("/dev/accel/accel0"), &std::io::Error::from_raw_os_error(errno));
        assert_eq!(cause.remedy(), remedy, "{cause}");
    }
}
