//! ggml's conversion functions, found in its libraries by name.
//!
//! They are those the CPU backend uses, with which `test-backend-ops` compares copies: `dequantize_row_*` of the base library,
//! and on x86-64 `quantize_row_*` of the CPU backend. Elsewhere rows are written by the base library's `quantize_row_*_ref`.

use aie_ops::DataType;
use anyhow::{Context, Result, ensure};
use libloading::Library;
use std::ffi::c_void;

/// The base library under the version of its interface.
const NAME: &str = "libggml-base.so.0";
/// The CPU backend for AVX2, in the folder this program is started in, and how its functions end; elsewhere the base library
/// serves.
#[cfg(target_arch = "x86_64")]
const WRITER: (&str, &str) = ("./libggml-cpu-haswell.so", "");
#[cfg(not(target_arch = "x86_64"))]
const WRITER: (&str, &str) = (NAME, "_ref");

/// `void dequantize_row_*(const void * blocks, float * values, int64_t count)` (ggml-quants.h).
type Dequantise = unsafe extern "C" fn(*const c_void, *mut f32, i64);
/// `void quantize_row_*(const float * values, void * blocks, int64_t count)` (ggml-cpu/quants.h), and `_ref` in ggml-quants.h.
type Quantise = unsafe extern "C" fn(*const f32, *mut c_void, i64);

pub struct Ggml {
    reader: Library,
    writer: Library,
}

impl Ggml {
    /// Opens the libraries where the loader finds them.
    ///
    /// # Errors
    /// The loader's words.
    pub fn load() -> Result<Self> {
        let load = |name: &str| {
            // SAFETY: ggml's libraries have no initialisation that depends on the program.
            let library = unsafe { Library::new(name) };
            library.with_context(|| format!("cannot load {name}; `cargo xtask block-formats` says where it is"))
        };
        Ok(Self { reader: load(NAME)?, writer: load(WRITER.0)? })
    }

    /// The numbers of whole blocks.
    ///
    /// # Errors
    /// The library has no such function, or the length is not whole blocks.
    pub fn decode(&self, dtype: DataType, bytes: &[u8]) -> Result<Vec<f32>> {
        ensure!(bytes.len().is_multiple_of(dtype.block_bytes()), "{} bytes are not whole blocks", bytes.len());
        let mut values = vec![0.0; bytes.len() / dtype.block_bytes() * dtype.block_elements()];
        // Blocks hold 16-bit words; ggml's memory is aligned for them, as words of 64 bits are.
        let mut aligned = vec![0_u64; bytes.len().div_ceil(8)];
        for (word, eight) in aligned.iter_mut().zip(bytes.chunks(8)) {
            let mut filled = [0; 8];
            filled[..eight.len()].copy_from_slice(eight);
            *word = u64::from_ne_bytes(filled);
        }
        // SAFETY: the function has this type in ggml-quants.h. It reads `count` values' blocks, which is what `aligned`
        // holds, and writes `count` values, the length of `values`. It keeps no pointer.
        unsafe {
            let name = format!("dequantize_row_{dtype}\0");
            let function =
                self.reader.get::<Dequantise>(name.as_bytes()).with_context(|| format!("ggml lacks {name}"))?;
            function(aligned.as_ptr().cast(), values.as_mut_ptr(), i64::try_from(values.len())?);
        }
        Ok(values)
    }

    /// The blocks of whole blocks' numbers.
    ///
    /// # Errors
    /// The library has no such function, or the length is not whole blocks.
    pub fn encode(&self, dtype: DataType, values: &[f32]) -> Result<Vec<u8>> {
        ensure!(values.len().is_multiple_of(dtype.block_elements()), "{} values are not whole blocks", values.len());
        let length = dtype.row_bytes(values.len());
        let mut aligned = vec![0_u64; length.div_ceil(8)];
        // SAFETY: the function has this type in its header. It reads `count` values, the length of `values`, and writes
        // their blocks, for which `aligned` has room. It keeps no pointer.
        unsafe {
            let name = format!("quantize_row_{dtype}{}\0", WRITER.1);
            let function =
                self.writer.get::<Quantise>(name.as_bytes()).with_context(|| format!("ggml lacks {name}"))?;
            function(values.as_ptr(), aligned.as_mut_ptr().cast(), i64::try_from(values.len())?);
        }
        let mut bytes: Vec<u8> = aligned.iter().flat_map(|word| word.to_ne_bytes()).collect();
        bytes.truncate(length);
        Ok(bytes)
    }
}
