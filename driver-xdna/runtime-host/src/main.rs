//! The helper process that runs the HSA runtime when `GGML_HSA_ISOLATE=1`.

use std::process::ExitCode;

fn main() -> ExitCode {
    aie_driver_xdna::isolated::host_main(std::env::args_os(), || {
        Err("this build has no runtime that can be opened in a helper process".to_owned())
    })
}
