//! Every case on AMD's ROCR library, on the simulated kernel device: `cargo xtask conformance --driver rocr`.

mod kernel_device;

use aie_conformance::conformance_suite;

conformance_suite!(rocr, kernel_device::backend("rocr", "xdna:0?runtime=rocr", &[]));
