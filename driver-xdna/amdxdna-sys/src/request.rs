//! Request codes of `ioctl`: direction, size of the structure, type letter, number.

use bytemuck::Pod;
use std::fmt;

/// Type letter of all DRM requests.
const DRM_IOCTL_BASE: u32 = b'd' as u32;

/// Which way a request's structure is copied, seen from the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// To the kernel (`_IOW`).
    Write,
    /// To the kernel and back (`_IOWR`).
    ReadWrite,
}

/// A structure that is the argument of one request.
pub trait Request: Pod {
    /// Its name without prefix, as in reports: `CREATE_BO`.
    const NAME: &'static str;
    /// Number within the DRM's type letter.
    const NUMBER: u32;
    /// Which way the structure goes.
    const DIRECTION: Direction;
    /// The code for `ioctl`, with the size of this structure.
    const CODE: RequestCode = RequestCode::new(Self::DIRECTION, Self::NUMBER, size_of::<Self>());
}

/// The second argument of `ioctl`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct RequestCode(pub u32);

impl RequestCode {
    /// The code of a DRM request.
    pub const fn new(direction: Direction, number: u32, bytes: usize) -> Self {
        let direction = match direction {
            Direction::Write => 1,
            Direction::ReadWrite => 3,
        };
        Self(direction << 30 | (bytes as u32) << 16 | DRM_IOCTL_BASE << 8 | number)
    }

    /// Whether it is a request of the DRM.
    pub const fn is_drm(self) -> bool {
        (self.0 >> 8) & 0xff == DRM_IOCTL_BASE
    }

    /// Its number within the type letter.
    pub const fn number(self) -> u32 {
        self.0 & 0xff
    }

    /// Bytes of the caller's structure.
    pub const fn bytes(self) -> usize {
        ((self.0 >> 16) & 0x3fff) as usize
    }
}

impl fmt::Debug for RequestCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RequestCode({:#010x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amdxdna_drm_create_bo;

    #[test]
    fn codes_come_apart() {
        let code = amdxdna_drm_create_bo::CODE;
        assert!(code.is_drm());
        assert_eq!((code.number(), code.bytes()), (0x43, 32));
        // KFD's version request.
        assert!(!RequestCode(0x8008_4b01).is_drm());
        // A later version of the structure, which has grown.
        assert_eq!(RequestCode(code.0 + (8 << 16)).number(), amdxdna_drm_create_bo::NUMBER);
    }
}
