//! The files of a kernel as compilers write them: a PDI or an xclbin with it, and a stream, binary or as text.

use aie_hal::format::instructions::from_text;
use aie_hal::format::xclbin;
use std::fmt::Display;
use std::path::Path;

/// The bytes of a file.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    std::fs::read(path).map_err(|cause| format!("{} cannot be read: {cause}", path.display()))
}

/// The instruction stream in a file, which can be text with a hexadecimal word a line.
pub fn stream(path: &Path) -> Result<Vec<u8>, String> {
    let bytes = read(path)?;
    match from_text(&bytes) {
        Some(words) => words.map_err(in_file(path)),
        None => Ok(bytes),
    }
}

/// Puts a file in front of what is wrong with it.
pub fn in_file<E: Display>(path: &Path) -> impl Fn(E) -> String {
    move |cause| format!("{}: {cause}", path.display())
}

/// What a file is that compilers make on the way to a PDI.
fn other_format(file: &[u8]) -> Option<String> {
    /// `e_machine` of AI Engine cores, as the LLVM fork for them numbers it.
    const AI_ENGINE: u16 = 264;
    /// Second word of a CDO, in either order of bytes; before it stands the length of the header in words.
    const IDENTS: [&[u8]; 3] = [b"XLNX", b"XNLX", b"CDO\0"];
    if file.starts_with(b"\x7fELF") {
        let machine = file.get(18..20).map(|bytes| u16::from_le_bytes([bytes[0], bytes[1]]));
        return Some(match machine {
            Some(AI_ENGINE) => "the ELF file of one core".to_owned(),
            Some(machine) => format!("an ELF file of machine {machine}, and no kernel"),
            None => "the beginning of an ELF file".to_owned(),
        });
    }
    let is_cdo = file.get(4..8).is_some_and(|ident| IDENTS.contains(&ident)) && file.starts_with(&4_u32.to_le_bytes());
    is_cdo.then(|| "a CDO, the list of writes in a PDI".to_owned())
}

/// The PDI in the bytes of a file; `index` chooses one of an xclbin that has several.
pub fn pdi<'a>(path: &Path, file: &'a [u8], index: Option<usize>) -> Result<&'a [u8], String> {
    let shown = path.display();
    if let Some(what) = other_format(file) {
        return Err(format!("{shown} is {what}; give the PDI, or the xclbin, that has it"));
    }
    if !xclbin::is_xclbin(file) {
        return match index {
            None | Some(0) => Ok(file),
            Some(index) => {
                Err(format!("there is no PDI {index} in {shown}, which is not an xclbin; leave out --pdi-index"))
            }
        };
    }
    let pdis = xclbin::pdis(file).map_err(in_file(path))?;
    let last = pdis.len().saturating_sub(1);
    match index {
        None if last > 0 => Err(format!("{shown} has {} PDIs; choose one with --pdi-index, 0 to {last}", pdis.len())),
        index => {
            let index = index.unwrap_or(0);
            let found = pdis.get(index).copied();
            found.ok_or_else(|| format!("there is no PDI {index} in {shown}; --pdi-index can be 0 to {last}"))
        }
    }
}
