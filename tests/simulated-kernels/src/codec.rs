//! Quantised blocks, by ggml's own functions: those of the process, so that results are those of every other driver.
//!
//! A process that holds the runtime for another one has no ggml. There, ggml's base library is loaded from where the loader
//! finds it.

use aie_ops::{BlockCodec, DataType};
use ggml_hsa::codec::GgmlCodec;
use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LAZY};
use std::sync::Once;

/// Names of ggml's base library, with and without the version of its interface.
const NAMES: [&str; 2] = ["libggml-base.so.0", "libggml-base.so"];

/// ggml's codec, with ggml loaded if nobody else has loaded it.
#[derive(Debug)]
pub struct LoadingCodec;

fn codec() -> GgmlCodec {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        // SAFETY: the symbol is only looked for.
        let known = unsafe { Library::this().get::<*const ()>(b"ggml_type_name\0") }.is_ok();
        if known {
            return;
        }
        for name in NAMES {
            // SAFETY: ggml's base library has no initialisation that depends on the program; it is the one the loader would
            // take for any other library that needs it.
            if let Ok(library) = unsafe { Library::open(Some(name), RTLD_LAZY | RTLD_GLOBAL) } {
                // It stays for as long as the process.
                let _ = library.into_raw();
                return;
            }
        }
    });
    GgmlCodec
}

impl BlockCodec for LoadingCodec {
    fn can_decode(&self, dtype: DataType) -> bool {
        dtype.is_quantised() && codec().can_decode(dtype)
    }

    fn can_encode(&self, dtype: DataType) -> bool {
        dtype.is_quantised() && codec().can_encode(dtype)
    }

    fn decode(&self, dtype: DataType, source: &[u8], target: &mut [f32]) -> bool {
        codec().decode(dtype, source, target)
    }

    fn encode(&self, dtype: DataType, source: &[f32], target: &mut [u8]) -> bool {
        codec().encode(dtype, source, target)
    }
}
