//! The interface of the amdxdna kernel driver (`/dev/accel/accelN`): structures, request numbers and constants.
//!
//! Everything that speaks to the kernel, or stands in for it, uses these declarations: the direct route of `aie-driver-xdna`, the ioctl
//! interposer of `aie-driver-rocr`, and the simulated kernel device. Names are those of the kernel's headers (`drm/amdxdna_accel.h`,
//! `drm/drm.h`), so that the kernel's documentation applies; a field named like a Rust keyword has an underscore behind it.
//! The crate makes no call: it has no `unsafe` and needs no library.
//!
//! - [`drm`]: requests of the DRM core that an accel node answers: closing BOs, PRIME, synchronisation objects.
//! - [`accel`]: requests of amdxdna itself.
//! - [`ert`]: what is inside of a command BO. The kernel's headers do not have this; it is the packet format of XRT's embedded
//!   runtime, and the facts are from the kernel driver's source (`amdxdna_ctx.h`, `aie2_msg_priv.h`).
//! - [`limits`]: numbers that kernel driver and firmware count in.
//! - [`recording`]: calls as lines of text without addresses, to be kept, read and repeated.
//! - [`layout`]: all declarations as tables, for a comparison with the real headers (`cargo xtask kernel-headers`).
//!
//! ```
//! use amdxdna_sys::{AMDXDNA_BO_SHMEM, Request, amdxdna_drm_create_bo};
//!
//! let request = amdxdna_drm_create_bo { size: 4096, type_: AMDXDNA_BO_SHMEM, ..Default::default() };
//! assert_eq!(amdxdna_drm_create_bo::CODE.bytes(), bytemuck::bytes_of(&request).len());
//! assert_eq!(amdxdna_drm_create_bo::CODE.0, 0xc020_6443);
//! ```
//!
//! All structures are plain integers without padding ([`bytemuck::Pod`]), so any bytes are a valid value and they can be read from
//! and written to the memory of a caller. Structures have grown at their ends over the kernel's versions: the DRM core fills up what a
//! caller's structure does not have with zeros, and a request is recognised by its [number](Request::NUMBER) alone.
//!
//! Source of the facts unless an item says otherwise: the headers of Linux 7.3. What older headers lack is marked with the version that
//! brought it.

#![allow(non_camel_case_types)] // the names of the kernel's headers

#[macro_use]
mod declare;

pub mod accel;
mod declaration;
pub mod drm;
pub mod ert;
pub mod layout;
pub mod limits;
pub mod recording;
mod request;

pub use accel::*;
pub use drm::*;
pub use request::{Direction, Request, RequestCode};
