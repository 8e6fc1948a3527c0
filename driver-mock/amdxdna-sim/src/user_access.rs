//! The caller's memory, as kernel calls see it: addresses in integers.
//!
//! The kernel checks every access and answers EFAULT. Here, an access goes to the page that the address names; only addresses
//! that cannot be right are EFAULT. A caller with a wild pointer gets a fault instead of an error code.

use bytemuck::{Pod, bytes_of, bytes_of_mut};
use nix::errno::Errno;

/// No object is below this address.
const LOWEST: u64 = 4096;
/// Most elements of a list; the kernel has no limit but its memory.
const MOST: usize = 1 << 16;

/// The memory of who makes a kernel call.
#[derive(Debug, Clone, Copy)]
pub struct UserMemory(());

fn check(address: u64, length: usize) -> Result<(), Errno> {
    let end = address.checked_add(length as u64);
    // The upper half of the address space belongs to the kernel.
    if address < LOWEST || end.is_none_or(|end| end >= 1 << 63) { Err(Errno::EFAULT) } else { Ok(()) }
}

/// The structure at the start of `bytes`; what is missing is zero.
pub fn prefix<T: Pod>(bytes: &[u8]) -> T {
    let mut value = T::zeroed();
    let target = bytes_of_mut(&mut value);
    let length = target.len().min(bytes.len());
    target[..length].copy_from_slice(&bytes[..length]);
    value
}

/// Applies a function to the structure in `bytes`.
pub fn with<T: Pod>(bytes: &mut [u8], apply: impl FnOnce(&mut T) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut value: T = prefix(bytes);
    let result = apply(&mut value);
    bytes.copy_from_slice(bytes_of(&value));
    result
}

impl UserMemory {
    /// The memory of the caller of one kernel call.
    ///
    /// # Safety
    /// Every address that the functions of the result are given is one that the caller gave for this purpose, in the call's arguments
    /// or in a structure that these lead to: the kernel would access it too.
    pub unsafe fn of_caller() -> Self {
        Self(())
    }

    /// Copies `length` bytes from the caller.
    ///
    /// # Errors
    /// EFAULT for an address that cannot be right.
    pub fn read(self, address: u64, length: usize) -> Result<Vec<u8>, Errno> {
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

    /// Copies a list from the caller.
    ///
    /// # Errors
    /// ENOMEM for a list that is too long, EFAULT for an address that cannot be right.
    pub fn list<T: Pod>(self, address: u64, count: u32) -> Result<Vec<T>, Errno> {
        let count = Some(count as usize).filter(|count| *count <= MOST).ok_or(Errno::ENOMEM)?;
        Ok(self.read(address, count * size_of::<T>())?.chunks_exact(size_of::<T>()).map(prefix).collect())
    }

    /// Copies bytes to the caller.
    ///
    /// # Errors
    /// EFAULT for an address that cannot be right.
    pub fn write(self, address: u64, bytes: &[u8]) -> Result<(), Errno> {
        if bytes.is_empty() {
            return Ok(());
        }
        check(address, bytes.len())?;
        let target = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: the caller of the kernel call says that so many bytes can be written there; the source is our own.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len()) };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_and_rejects() {
        let mut target = [0_u8; 4];
        let address = target.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the address of `target`, which is as long; the others are not accessed.
        let user = unsafe { UserMemory::of_caller() };
        user.write(address, &[1, 2, 3, 4]).unwrap();
        assert_eq!((user.read(address, 4), user.list(address, 2)), (Ok(vec![1, 2, 3, 4]), Ok(vec![0x201_u16, 0x403])));
        assert_eq!(user.list::<u8>(address, 1 << 17), Err(Errno::ENOMEM));
        for address in [0, 8, u64::MAX, 1 << 63] {
            assert_eq!(user.read(address, 4), Err(Errno::EFAULT));
        }
        assert_eq!(target, [1, 2, 3, 4]);
    }
}
