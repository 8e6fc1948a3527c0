//! The caller's memory, as kernel calls see it: addresses in integers.
//!
//! The kernel checks every access and answers EFAULT. Here, an access goes to the page that the address names; only addresses
//! that cannot be right are EFAULT. A caller with a wild pointer gets a fault instead of an error code.

use nix::errno::Errno;

/// No object is below this address.
const LOWEST: u64 = 4096;

fn check(address: u64, length: usize) -> Result<(), Errno> {
    let end = address.checked_add(length as u64);
    // The upper half of the address space belongs to the kernel.
    if address < LOWEST || end.is_none_or(|end| end >= 1 << 63) { Err(Errno::EFAULT) } else { Ok(()) }
}

/// Copies `length` bytes from the caller.
///
/// # Safety
/// `address` is one that the caller of a kernel call gave for this purpose: the kernel would read it too.
///
/// # Errors
/// EFAULT for an address that cannot be right.
pub unsafe fn read(address: u64, length: usize) -> Result<Vec<u8>, Errno> {
    if length == 0 {
        return Ok(Vec::new());
    }
    check(address, length)?;
    let mut bytes = vec![0_u8; length];
    let source = std::ptr::with_exposed_provenance::<u8>(address as usize);
    // SAFETY: the caller of the kernel call says that `length` bytes can be read there; the target is as long and our own.
    unsafe { std::ptr::copy_nonoverlapping(source, bytes.as_mut_ptr(), length) };
    Ok(bytes)
}

/// Copies bytes to the caller.
///
/// # Safety
/// As for [`read`], for writing.
///
/// # Errors
/// EFAULT for an address that cannot be right.
pub unsafe fn write(address: u64, bytes: &[u8]) -> Result<(), Errno> {
    if bytes.is_empty() {
        return Ok(());
    }
    check(address, bytes.len())?;
    let target = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
    // SAFETY: the caller of the kernel call says that so many bytes can be written there; the source is our own.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_refuses() {
        let mut target = [0_u8; 4];
        let address = target.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the address is that of `target`, which is as long.
        unsafe {
            write(address, &[1, 2, 3, 4]).unwrap();
            assert_eq!(read(address, 4), Ok(vec![1, 2, 3, 4]));
        }
        for address in [0, 8, u64::MAX, 1 << 63] {
            // SAFETY: none of these is accessed.
            assert_eq!(unsafe { read(address, 4) }, Err(Errno::EFAULT));
        }
        assert_eq!(target, [1, 2, 3, 4]);
    }
}
