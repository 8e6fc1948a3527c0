//! ggml's functions, found when the library is loaded.
//!
//! Nothing of ggml is linked: an undefined symbol would keep the library from loading into a program that opened libggml with
//! local scope, and a needed library name would exclude builds that name it otherwise. Instead each symbol is searched
//! in the global scope, then in `libggml-base` if that is loaded, then in every loaded object whose name contains `ggml`.

use super::layout::{Layout, Version};
use super::types::{BufferI, RawTypeTraits};
use libc::{RTLD_DEFAULT, RTLD_LAZY, RTLD_NOLOAD, c_int, c_void, dl_phdr_info, size_t};
use std::ffi::{CStr, CString, c_char};
use std::sync::OnceLock;

type Ptr = *mut c_void;
type NameFn = unsafe extern "C" fn(c_int) -> *const c_char;

/// The functions we use. Optional ones are `None` when the loaded ggml does not have them.
pub struct Symbols {
    /// Structure layout.
    pub layout: Layout,
    /// `ggml_version()`.
    pub version: Option<Version>,
    buffer_init: *mut c_void,
    op_name: NameFn,
    type_name: NameFn,
    unary_op_name: Option<NameFn>,
    glu_op_name: Option<NameFn>,
    type_traits: Option<unsafe extern "C" fn(c_int) -> *const RawTypeTraits>,
    log: Option<unsafe extern "C" fn(c_int, *const c_char, ...)>,
    device_count: Option<unsafe extern "C" fn() -> usize>,
    device_get: Option<unsafe extern "C" fn(usize) -> Ptr>,
    device_type: Option<unsafe extern "C" fn(Ptr) -> c_int>,
}

// SAFETY: the fields are addresses of functions that ggml documents as free of thread-local state; they never change.
unsafe impl Send for Symbols {}
// SAFETY: as above.
unsafe impl Sync for Symbols {}

/// Handles of libraries that may define ggml's symbols.
struct Search {
    handles: Vec<*mut c_void>,
}

unsafe extern "C" fn collect(info: *mut dl_phdr_info, _: size_t, names: *mut c_void) -> c_int {
    // SAFETY: the dynamic linker passes a valid `info` for the time of the call, and `names` is the vector given below.
    let (info, names) = unsafe { (&*info, &mut *names.cast::<Vec<CString>>()) };
    if !info.dlpi_name.is_null() {
        // SAFETY: a non-null object name is a C string that lives as long as the object.
        let name = unsafe { CStr::from_ptr(info.dlpi_name) };
        if name.to_bytes().windows(4).any(|w| w == b"ggml") {
            names.push(name.to_owned());
        }
    }
    0
}

impl Search {
    fn new() -> Self {
        let mut names: Vec<CString> = vec![c"libggml-base.so.0".into(), c"libggml-base.so".into()];
        // SAFETY: `collect` matches the callback's type and `names` outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect), (&raw mut names).cast()) };
        let mut handles = vec![RTLD_DEFAULT];
        for name in names {
            // SAFETY: RTLD_NOLOAD loads nothing and runs no code; a handle only raises the reference count of an object that
            // is needed for as long as the backend is.
            let handle = unsafe { libc::dlopen(name.as_ptr(), RTLD_LAZY | RTLD_NOLOAD) };
            if !handle.is_null() {
                handles.push(handle);
            }
        }
        Self { handles }
    }

    fn find(&self, name: &str) -> Option<*mut c_void> {
        let name = CString::new(name).ok()?;
        self.handles.iter().find_map(|&handle| {
            // SAFETY: `handle` is RTLD_DEFAULT or came from dlopen and was not closed; `name` is a C string.
            let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        })
    }

    /// # Safety
    /// `F` has to be a function pointer of the type that ggml declares for `name`.
    unsafe fn function<F: Copy>(&self, name: &str) -> Option<F> {
        assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
        // SAFETY: a symbol's address and a function pointer have the same size (checked) and representation; the caller
        // vouches for the type.
        self.find(name).map(|symbol| unsafe { std::mem::transmute_copy::<*mut c_void, F>(&symbol) })
    }
}

/// The ggml in this process cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum GgmlError {
    /// There is none, or one without this function.
    #[error("function {0} was not found in this process: a backend is loaded by ggml, not started alone")]
    Function(&'static str),
    /// Its operations cannot be counted.
    #[error("ggml's table of operations has no GLU: this version of ggml is not known to this backend")]
    Operations,
    /// It is newer and differs.
    #[error(
        "ggml {}.{}.{} is newer than this backend, and its structures are different: {difference}; use a newer \
         libggml-hsa.so", version.0, version.1, version.2
    )]
    #[allow(missing_docs, reason = "the message names them")]
    Newer { version: Version, difference: String },
}

static SYMBOLS: OnceLock<Result<Symbols, GgmlError>> = OnceLock::new();

/// The symbols of the ggml in this process.
///
/// # Errors
/// Names what is missing, when no ggml is loaded or a needed function is not in it.
pub fn symbols() -> Result<&'static Symbols, &'static GgmlError> {
    SYMBOLS.get_or_init(Symbols::find).as_ref()
}

fn text(pointer: *const c_char) -> Option<&'static str> {
    if pointer.is_null() {
        return None;
    }
    // SAFETY: ggml's name functions return C strings in static storage.
    unsafe { CStr::from_ptr(pointer) }.to_str().ok()
}

impl Symbols {
    fn find() -> Result<Self, GgmlError> {
        let search = Search::new();
        let needed = |name: &'static str| search.find(name).ok_or(GgmlError::Function(name));
        needed("ggml_backend_buffer_init")?;
        needed("ggml_op_name")?;
        needed("ggml_type_name")?;
        // SAFETY: each type is the declaration in ggml.h, ggml-impl.h or ggml-backend.h, unchanged in all versions from 0.9.1 on.
        unsafe {
            let version: Option<unsafe extern "C" fn() -> *const c_char> = search.function("ggml_version");
            Ok(Self {
                layout: Layout::probe(|name| search.find(name).is_some()),
                version: version.and_then(|f| text(f())).and_then(Version::parse),
                buffer_init: needed("ggml_backend_buffer_init")?,
                op_name: search.function("ggml_op_name").ok_or(GgmlError::Function("ggml_op_name"))?,
                type_name: search.function("ggml_type_name").ok_or(GgmlError::Function("ggml_type_name"))?,
                unary_op_name: search.function("ggml_unary_op_name"),
                glu_op_name: search.function("ggml_glu_op_name"),
                type_traits: search.function("ggml_get_type_traits"),
                log: search.function("ggml_log_internal"),
                device_count: search.function("ggml_backend_dev_count"),
                device_get: search.function("ggml_backend_dev_get"),
                device_type: search.function("ggml_backend_dev_type"),
            })
        }
    }

    /// Whether ggml's logger was found.
    pub fn has_log(&self) -> bool {
        self.log.is_some()
    }

    /// Sends one message to ggml's logger.
    pub fn log(&self, level: c_int, message: &str) {
        if let (Some(log), Ok(message)) = (self.log, CString::new(message)) {
            // SAFETY: the format takes exactly one C string, which lives until the call returns.
            unsafe { log(level, c"%s".as_ptr(), message.as_ptr()) };
        }
    }

    /// `ggml_op_name`. `index` must not be above the number of operations.
    pub fn op_name(&self, index: c_int) -> Option<&'static str> {
        // SAFETY: callers walk upwards and stop at the last operation, or pass a number ggml itself wrote.
        text(unsafe { (self.op_name)(index) })
    }

    /// `ggml_type_name` of a type number that ggml itself wrote.
    pub fn type_name(&self, index: c_int) -> Option<&'static str> {
        // SAFETY: the number comes from a tensor, so it indexes ggml's table.
        text(unsafe { (self.type_name)(index) })
    }

    /// `ggml_unary_op_name` of a number that ggml itself wrote.
    pub fn unary_op_name(&self, index: c_int) -> Option<&'static str> {
        // SAFETY: as for `type_name`.
        self.unary_op_name.and_then(|f| text(unsafe { f(index) }))
    }

    /// `ggml_glu_op_name` of a number that ggml itself wrote.
    pub fn glu_op_name(&self, index: c_int) -> Option<&'static str> {
        // SAFETY: as for `type_name`.
        self.glu_op_name.and_then(|f| text(unsafe { f(index) }))
    }

    /// The traits of a type number that ggml itself wrote.
    pub fn type_traits(&self, index: c_int) -> Option<&'static RawTypeTraits> {
        let traits = self.type_traits?;
        // SAFETY: ggml returns the address of an entry of a static table, or null.
        unsafe { traits(index).as_ref() }
    }

    /// The types of all registered devices that `skip` does not recognise by address.
    pub fn other_device_types(&self, skip: impl Fn(*mut c_void) -> bool) -> Vec<c_int> {
        let (Some(count), Some(get), Some(kind)) = (self.device_count, self.device_get, self.device_type) else {
            return Vec::new();
        };
        // SAFETY: ggml's registry functions; indices stay below the count.
        unsafe { (0..count()).map(|i| get(i)).filter(|d| !d.is_null() && !skip(*d)).map(|d| kind(d)).collect() }
    }

    /// Calls a public getter of ggml that takes one object and returns a word.
    pub(super) fn ask(&self, function: &'static str, object: Ptr) -> Result<usize, String> {
        type Getter = unsafe extern "C" fn(Ptr) -> usize;
        // SAFETY: these functions take one pointer and return a pointer, size, enumeration or bool in a register, whose
        // upper bits the caller masks.
        let getter: Option<Getter> = unsafe { Search::new().function(function) };
        let getter = getter.ok_or_else(|| format!("function {function} is missing"))?;
        // SAFETY: `object` is what the function takes.
        Ok(unsafe { getter(object) })
    }

    /// `ggml_backend_buffer_init`.
    ///
    /// # Safety
    /// `iface` is the table of the loaded layout, and `buft` and `context` are what its callbacks expect.
    pub unsafe fn buffer_init<I>(&self, buft: Ptr, iface: BufferI<I>, context: Ptr, size: usize) -> Ptr {
        type Init<I> = unsafe extern "C" fn(Ptr, BufferI<I>, Ptr, usize) -> Ptr;
        // SAFETY: the symbol is ggml_backend_buffer_init, whose second parameter has this type in the loaded layout.
        let init = unsafe { std::mem::transmute::<Ptr, Init<I>>(self.buffer_init) };
        // SAFETY: by the contract of this function.
        unsafe { init(buft, iface, context, size) }
    }
}
