//! Every case on the kernel's own interface, on the simulated kernel device: `cargo xtask conformance --driver xdna`.

mod kernel_device;

use aie_conformance::Tag;
use aie_driver_xdna::route::Route;

/// Of the kernels that are simulated all but the oldest take memory of the program, and only AMD's own module takes what the program may
/// not write, such as mapped models.
fn imports() -> &'static [Tag] {
    match std::env::var("AMDXDNA_SIM_KERNEL").as_deref() {
        Ok("legacy") => &[Tag::HostImport, Tag::FileImport],
        Ok("6.14") => &[],
        _ => &[Tag::HostImport],
    }
}

fn main() {
    aie_conformance::run(vec![kernel_device::backend("direct", "xdna:0", Route::Direct, imports())]).exit();
}
