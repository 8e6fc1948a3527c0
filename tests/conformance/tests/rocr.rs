//! Every case on AMD's ROCR library, on the simulated kernel device: `cargo xtask conformance --driver rocr`.

mod kernel_device;

use aie_driver_xdna::route::Route;

fn main() {
    let backend = kernel_device::backend("rocr", "xdna:0?runtime=rocr", Route::Rocr, &[]);
    aie_conformance::run(vec![backend]).exit();
}
