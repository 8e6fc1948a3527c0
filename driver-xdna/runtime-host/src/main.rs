//! The helper process that runs the HSA runtime when `GGML_HSA_ISOLATE=1`.

use std::process::ExitCode;

fn main() -> ExitCode {
    aie_driver_xdna::isolated::host_main(std::env::args_os(), || {
        aie_driver_xdna::start_hosted().map_err(|cause| cause.to_string())
    })
}
