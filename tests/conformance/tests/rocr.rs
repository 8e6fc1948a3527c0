//! Every case on AMD's ROCR library, on the simulated kernel device: `cargo xtask conformance --driver rocr`.

mod kernel_device;

fn main() {
    aie_conformance::run(vec![kernel_device::backend("rocr", "xdna:0?runtime=rocr", &[])]).exit();
}
