//! Where a loaded library keeps the addresses of functions it imports, and how one of them is replaced.
//!
//! A shared library calls a function of another library through a slot that the loader fills. Replacing the slot's content
//! redirects the calls of that one library, in this process, and of nothing else: the file is not changed, and other
//! libraries keep calling the original. Sources: ELF gABI, and the x86-64 and AArch64 supplements for the relocation types.

use libc::{Elf64_Phdr, c_int, c_void, dl_phdr_info};
use object::NativeEndian as Native;
use object::elf::{self, Dyn64, Rela64, RelocationType, Sym64};
use std::ffi::{CStr, c_char};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The types of relocations whose slot holds a function's address.
#[cfg(target_arch = "aarch64")]
const SLOT_TYPES: [RelocationType; 2] = [elf::R_AARCH64_GLOB_DAT, elf::R_AARCH64_JUMP_SLOT];
#[cfg(not(target_arch = "aarch64"))]
const SLOT_TYPES: [RelocationType; 2] = [elf::R_X86_64_GLOB_DAT, elf::R_X86_64_JUMP_SLOT];

/// A slot of a library that holds the address of an imported function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    address: usize,
    /// Whether the loader made its page read-only after filling it.
    sealed: bool,
}

impl Slot {
    /// What the slot holds now.
    #[cfg(test)]
    fn get(self) -> usize {
        // SAFETY: `find` only makes slots inside the image of a library that is never unloaded; they are aligned words.
        unsafe { &*(self.address as *const AtomicUsize) }.load(Ordering::Acquire)
    }

    /// Puts `function` into the slot. Calls that are under way finish in the old function.
    ///
    /// # Errors
    /// When the page cannot be made writable.
    ///
    /// # Safety
    /// `function` is the address of a function with the type of the imported one, valid for the rest of the process.
    pub(super) unsafe fn set(self, function: usize) -> io::Result<()> {
        let page = page_size();
        let start = self.address & !(page - 1);
        let protect = |protection: c_int| {
            // SAFETY: the page belongs to the library's image; changing its protection to more, or back, takes nothing from
            // anybody.
            match unsafe { libc::mprotect(start as *mut c_void, page, protection) } {
                0 => Ok(()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        protect(libc::PROT_READ | libc::PROT_WRITE)?;
        // SAFETY: as for `get`; the page is writable now.
        unsafe { &*(self.address as *const AtomicUsize) }.store(function, Ordering::Release);
        if self.sealed {
            protect(libc::PROT_READ)?;
        }
        Ok(())
    }
}

fn page_size() -> usize {
    // SAFETY: no arguments that could be wrong.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// The import slots for `names` in the loaded library whose code contains `inside`. A name that the library does not
/// import has `None`.
pub(super) fn find<const N: usize>(inside: usize, names: [&str; N]) -> [Option<Slot>; N] {
    let mut search = Search { inside, names: &names, found: vec![None; N] };
    // SAFETY: `visit` has the callback's type, and `search` outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(visit), (&raw mut search).cast()) };
    std::array::from_fn(|index| search.found[index])
}

struct Search<'a> {
    inside: usize,
    names: &'a [&'a str],
    found: Vec<Option<Slot>>,
}

unsafe extern "C" fn visit(info: *mut dl_phdr_info, _size: usize, data: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and `find` passed its search.
    let (info, search) = unsafe { (&*info, &mut *data.cast::<Search<'_>>()) };
    // SAFETY: the loader says that these program headers are there.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
    let base = info.dlpi_addr as usize;
    let covers = |h: &Elf64_Phdr, address: usize| {
        let start = base + h.p_vaddr as usize;
        (start..start + h.p_memsz as usize).contains(&address)
    };
    if !headers.iter().any(|h| h.p_type == libc::PT_LOAD && covers(h, search.inside)) {
        return 0;
    }
    let sealed = |address: usize| headers.iter().any(|h| h.p_type == libc::PT_GNU_RELRO && covers(h, address));
    if let Some(dynamic) = headers.iter().find(|h| h.p_type == libc::PT_DYNAMIC) {
        // SAFETY: the header is the dynamic section of a library that the loader has relocated.
        unsafe { search.library(base, base + dynamic.p_vaddr as usize, sealed) };
    }
    1
}

impl Search<'_> {
    /// # Safety
    /// `dynamic` is the address of the dynamic section of a loaded library with this `base`.
    unsafe fn library(&mut self, base: usize, dynamic: usize, sealed: impl Fn(usize) -> bool) {
        let [mut plt, mut plt_bytes, mut rela, mut rela_bytes, mut symbols, mut strings] = [0_usize; 6];
        let mut entry = dynamic as *const Dyn64<Native>;
        loop {
            // SAFETY: the section ends with DT_NULL, which ends this loop.
            let Dyn64 { d_tag, d_val } = unsafe { entry.read() };
            let (tag, value) = (d_tag.get(Native), d_val.get(Native) as usize);
            // glibc has turned these into addresses; other loaders leave offsets.
            let address = if value < base { base + value } else { value };
            match tag {
                elf::DT_NULL => break,
                elf::DT_JMPREL => plt = address,
                elf::DT_PLTRELSZ => plt_bytes = value,
                elf::DT_RELA => rela = address,
                elf::DT_RELASZ => rela_bytes = value,
                elf::DT_SYMTAB => symbols = address,
                elf::DT_STRTAB => strings = address,
                _ => {}
            }
            // SAFETY: DT_NULL has not been seen, so there is another entry.
            entry = unsafe { entry.add(1) };
        }
        if symbols == 0 || strings == 0 {
            return;
        }
        for (table, bytes) in [(plt, plt_bytes), (rela, rela_bytes)] {
            for index in 0..if table == 0 { 0 } else { bytes / size_of::<Rela64<Native>>() } {
                // SAFETY: the index is below the number of entries that the section states.
                let relocation = unsafe { (table as *const Rela64<Native>).add(index).read() };
                if !SLOT_TYPES.contains(&relocation.r_type(Native, false)) {
                    continue;
                }
                // SAFETY: a relocation of these types names a symbol of the table, whose name is an offset into the strings.
                let name = unsafe {
                    let symbol = (symbols as *const Sym64<Native>).add(relocation.r_sym(Native, false) as usize).read();
                    CStr::from_ptr((strings + symbol.st_name.get(Native) as usize) as *const c_char)
                };
                let Some(at) = self.names.iter().position(|wanted| wanted.as_bytes() == name.to_bytes()) else {
                    continue;
                };
                let address = base + relocation.r_offset.get(Native) as usize;
                self.found[at] = Some(Slot { address, sealed: sealed(address) });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn imports_of_a_library_are_found_and_others_are_not() {
        // This test program itself imports from libc.
        let [calloc, nonsense] = find(find::<0> as *const () as usize, ["calloc", "no_such_function_anywhere"]);
        assert_eq!(nonsense, None);
        let slot = calloc.expect("a Rust program imports calloc");
        assert_eq!(slot.get(), libc::calloc as *const () as usize);
    }

    #[test]
    fn code_outside_all_libraries_has_no_imports() {
        assert_eq!(find(1, ["calloc"]), [None]);
    }

    #[test]
    fn a_replaced_import_is_called_and_can_be_put_back() {
        unsafe extern "C" fn seven() -> libc::pid_t {
            7
        }
        // `getppid` is imported by this program for this line alone.
        let parent = || {
            // SAFETY: no arguments.
            unsafe { libc::getppid() }
        };
        let real = parent();
        let [slot] = find(find::<0> as *const () as usize, ["getppid"]);
        let slot = slot.expect("the call above imports it");
        let old = slot.get();
        // SAFETY: `seven` has the type of `getppid`.
        unsafe { slot.set(seven as *const () as usize) }.unwrap();
        assert_eq!(parent(), 7);
        // SAFETY: it is what was there.
        unsafe { slot.set(old) }.unwrap();
        assert_eq!(parent(), real);
    }
}
