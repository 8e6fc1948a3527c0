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

/// The PDI in the bytes of a file; `index` chooses one of an xclbin that has several.
pub fn pdi<'a>(path: &Path, file: &'a [u8], index: Option<usize>) -> Result<&'a [u8], String> {
    let shown = path.display();
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
