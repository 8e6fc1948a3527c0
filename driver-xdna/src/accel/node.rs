//! An open accel node: typed requests and mappings.
//!
//! Calls go through the C library, so that a preload library can stand in for the kernel.

use super::call_error::CallError;
use super::recorder::Recorder;
use aie_hal::OwningProcess;
use amdxdna_sys::recording::Fields;
use amdxdna_sys::{
    DRM_AMDXDNA_QUERY_AIE_METADATA, DRM_AMDXDNA_QUERY_AIE_VERSION, Request, RequestCode, amdxdna_drm_create_bo,
    amdxdna_drm_create_hwctx, amdxdna_drm_get_info, amdxdna_drm_query_aie_metadata, amdxdna_drm_query_aie_version,
};
use bytemuck::Pod;
use std::ffi::{c_int, c_void};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

/// How often an interrupted or postponed kernel call is retried before its error counts.
const ATTEMPTS: usize = 100;

/// An accel node that is open for reading and writing.
#[derive(Debug)]
pub struct Node {
    descriptor: RawFd,
    /// `None` where the descriptor is somebody else's. Closed when dropped; the kernel then frees all that was made through it.
    _file: Option<File>,
    path: PathBuf,
    /// Takes down the calls, where that is wanted.
    recorder: Option<Recorder>,
    /// Who opened it. A forked child shares the open file, and what it asked the kernel for would happen to its parent.
    owner: OwningProcess,
}

/// Whether a call that failed may succeed when it is retried at once.
fn is_postponed(call: &str, cause: &io::Error) -> bool {
    // What makes something of the heap says so when it is full, which lasts.
    let is_of_the_heap = [amdxdna_drm_create_bo::NAME, amdxdna_drm_create_hwctx::NAME].contains(&call);
    match cause.raw_os_error() {
        Some(libc::EINTR) => true,
        Some(libc::EAGAIN) => !is_of_the_heap,
        _ => false,
    }
}

impl Node {
    /// Opens the node at `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Self::recorded(path, None)
    }

    /// Opens the node at `path`, with `recorder` for its calls.
    pub(crate) fn recorded(path: &Path, recorder: Option<Recorder>) -> io::Result<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path);
        recorder.iter().for_each(|recorder| recorder.opened(&file));
        let file = file?;
        let owner = OwningProcess::current();
        Ok(Self { descriptor: file.as_raw_fd(), _file: Some(file), path: path.to_owned(), recorder, owner })
    }

    /// A node that somebody else has opened, and closes.
    pub fn borrowed(descriptor: RawFd) -> Self {
        let owner = OwningProcess::current();
        Self { descriptor, _file: None, path: PathBuf::new(), recorder: None, owner }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a request, again when it was interrupted.
    pub(crate) fn request<T: Request>(&self, structure: &mut T) -> Result<(), CallError> {
        let before = *structure;
        // SAFETY: `T` is the structure of this request and lives across the call. Its bytes may be anything. Addresses inside of it
        // are those that the caller put there for this request.
        let result = unsafe { self.raw_request(T::NAME, T::CODE, (&raw mut *structure).cast()) };
        if let Some(recorder) = &self.recorder {
            recorder.requested(&before, structure, &result);
        }
        result
    }

    /// Notes what the next request names by an address, where calls are recorded.
    pub(crate) fn note_beside(&self, fields: impl FnOnce(&mut Fields)) {
        if let Some(recorder) = &self.recorder {
            let mut noted = Fields::default();
            fields(&mut noted);
            recorder.beside(noted);
        }
    }

    /// Notes what this driver has written to the BO `handle`, or read there, where calls are recorded: [`WRITE`] or [`READ`].
    ///
    /// [`WRITE`]: amdxdna_sys::recording::WRITE
    /// [`READ`]: amdxdna_sys::recording::READ
    pub(crate) fn note_contents(&self, name: &str, handle: u32, bytes: impl FnOnce() -> Vec<u8>) {
        if let Some(recorder) = &self.recorder {
            recorder.contents(name, handle, &bytes());
        }
    }

    /// As `request`, for a caller whose structure may be of another version than this crate's.
    ///
    /// # Errors
    /// The kernel's.
    ///
    /// # Safety
    /// `argument` points to the structure of the request with this code.
    pub unsafe fn raw_request(
        &self,
        call: &'static str,
        code: RequestCode,
        argument: *mut c_void,
    ) -> Result<(), CallError> {
        if !self.owner.is_current() {
            let reason = format!("the NPU was opened by process {}, and this is a child of it", self.owner.id());
            return Err(CallError { call, cause: io::Error::other(reason) });
        }
        let mut attempts = 0;
        loop {
            // SAFETY: as the caller promises.
            if unsafe { libc::ioctl(self.descriptor, code.0 as _, argument) } >= 0 {
                return Ok(());
            }
            let cause = io::Error::last_os_error();
            attempts += 1;
            if attempts >= ATTEMPTS || !is_postponed(call, &cause) {
                return Err(CallError { call, cause });
            }
        }
    }

    /// Queries one structure with GET_INFO.
    pub(crate) fn query<T: Pod>(&self, param: u32) -> Result<T, CallError> {
        let mut value = T::zeroed();
        // The kernel writes through the number; the compiler has to know that the structure is reachable.
        let buffer = (&raw mut value).expose_provenance() as u64;
        self.request(&mut amdxdna_drm_get_info { param, buffer_size: size_of::<T>() as u32, buffer })?;
        if let Some(recorder) = &self.recorder {
            recorder.informed(bytemuck::bytes_of(&value));
        }
        Ok(value)
    }

    /// Rows of cores times columns, of which there are at most `columns`: the tiles of a context that has the whole array. npu1 shows a
    /// column more than contexts can have: it has no way to memory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn core_tiles(&self, columns: usize) -> Result<u32, CallError> {
        let metadata: amdxdna_drm_query_aie_metadata = self.query(DRM_AMDXDNA_QUERY_AIE_METADATA)?;
        let columns = columns.min(metadata.cols.into());
        Ok(columns as u32 * u32::from(metadata.core.row_count))
    }

    /// Whether `cause` says that the device is lost, and it does not answer any more: the error numbers of a lost device mean other
    /// things too.
    pub(crate) fn is_gone(&self, cause: &CallError) -> bool {
        let version = || self.query::<amdxdna_drm_query_aie_version>(DRM_AMDXDNA_QUERY_AIE_VERSION);
        cause.is_lost() && version().is_err_and(|cause| cause.is_lost())
    }

    /// Maps `bytes` bytes of the BO at `offset`: anywhere, or over what is mapped at `place`, which belongs to the caller.
    pub(crate) fn map(&self, offset: u64, bytes: usize, place: Option<NonNull<u8>>) -> Result<Mapping, CallError> {
        let start = libc::off_t::try_from(offset).map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW));
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: without a place the kernel chooses free addresses, and a place is the caller's to replace.
        let mapped = start.and_then(|start| unsafe { mmap(place, bytes, protection, flags, self.descriptor, start) });
        if let Some(recorder) = &self.recorder {
            recorder.mapped(offset, bytes, &mapped);
        }
        mapped.map(|address| Mapping { address, bytes }).map_err(|cause| CallError { call: "mmap", cause })
    }
}

/// Maps pages: anywhere, or at `place`, over what is there.
///
/// # Safety
/// What is mapped at `place` is unused.
unsafe fn mmap(
    place: Option<NonNull<u8>>,
    bytes: usize,
    protection: c_int,
    flags: c_int,
    descriptor: RawFd,
    offset: libc::off_t,
) -> io::Result<NonNull<u8>> {
    let flags = flags | if place.is_some() { libc::MAP_FIXED } else { 0 };
    let wanted = place.map_or(std::ptr::null_mut(), |place| place.as_ptr().cast());
    // SAFETY: the kernel chooses free addresses, or the place is the caller's to replace.
    let found = unsafe { libc::mmap(wanted, bytes, protection, flags, descriptor, offset) };
    let address = NonNull::new(found.cast()).filter(|_| found != libc::MAP_FAILED);
    address.ok_or_else(io::Error::last_os_error)
}

/// Pages of this process. Unmapped when dropped.
#[derive(Debug)]
pub struct Mapping {
    address: NonNull<u8>,
    bytes: usize,
}

// SAFETY: a mapping belongs to no thread; what is done with the bytes is up to those who use them.
unsafe impl Send for Mapping {}
// SAFETY: as for `Send`; a shared reference gives no more than the address.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Reserves addresses without memory and without access.
    ///
    /// # Errors
    /// The system's, when the process may have no more addresses.
    pub fn reserve(bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses free addresses.
        unsafe { Self::reserve_at(None, bytes) }
    }

    /// As [`Mapping::reserve`]; at `place`, over what is there.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Safety
    /// What is mapped at `place` is unused.
    pub unsafe fn reserve_at(place: Option<NonNull<u8>>, bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: as the caller promises.
        let address = unsafe { mmap(place, bytes, libc::PROT_NONE, flags, -1, 0) }?;
        Ok(Self { address, bytes })
    }

    /// Maps the first `bytes` bytes of a file for reading.
    pub(crate) fn of_file(file: &File, bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses free addresses.
        let address = unsafe { mmap(None, bytes, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0) }?;
        Ok(Self { address, bytes })
    }

    /// The first byte.
    pub fn address(&self) -> NonNull<u8> {
        self.address
    }

    /// Its number, for the kernel.
    pub fn number(&self) -> u64 {
        self.address.as_ptr().expose_provenance() as u64
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.bytes
    }

    /// Leaves it mapped for the rest of the process.
    pub fn leak(self) {
        std::mem::forget(self);
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range was mapped for this object, and its owner has seen to it that no one uses it any more.
        if unsafe { libc::munmap(self.address.as_ptr().cast(), self.bytes) } != 0 {
            tracing::debug!("{} bytes stay mapped: {}", self.bytes, io::Error::last_os_error());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_none_answers_with_errors() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let node = Node::open(file.path()).unwrap();
        let error = node.request(&mut amdxdna_drm_create_bo::default()).unwrap_err();
        assert_eq!((error.call, error.errno()), ("CREATE_BO", libc::ENOTTY));
        assert!(!error.is_lost());
        assert!(error.to_string().starts_with("CREATE_BO: "), "{error}");
        assert!(Node::open(Path::new("/nowhere/accel0")).is_err());
    }

    #[test]
    fn a_full_heap_is_no_memory_and_not_asked_again() {
        let failed = |call, errno| CallError { call, cause: io::Error::from_raw_os_error(errno) };
        for (call, errno, no_memory, postponed) in [
            ("CREATE_BO", libc::EAGAIN, true, false),
            ("CREATE_BO", libc::ENOSPC, true, false),
            ("CREATE_BO", libc::EINTR, false, true),
            ("CREATE_HWCTX", libc::EAGAIN, false, false),
            ("EXEC_CMD", libc::EAGAIN, false, true),
            ("EXEC_CMD", libc::EINVAL, false, false),
        ] {
            let error = failed(call, errno);
            assert_eq!(error.is_no_memory(), no_memory, "{error}");
            assert_eq!(is_postponed(call, &error.cause), postponed, "{error}");
        }
    }

    #[test]
    fn addresses_can_be_reserved_and_replaced() {
        let reserved = Mapping::reserve(1 << 20).unwrap();
        let mut file = tempfile::NamedTempFile::new().unwrap();
        io::Write::write_all(&mut file, &[7; 8192]).unwrap();
        let node = Node::open(file.path()).unwrap();
        let place = reserved.address();
        let mapped = node.map(4096, 4096, Some(place)).unwrap();
        assert_eq!(mapped.address(), place);
        // SAFETY: the page was just mapped from a file of two pages.
        assert_eq!(unsafe { mapped.address().read() }, 7);
        assert_eq!(node.map(u64::MAX, 4096, None).unwrap_err().errno(), libc::EOVERFLOW);
        // Its pages belong to the reservation.
        mapped.leak();
    }
}
