//! Damaged files of models, by a fixed seed: each is read or rejected, without a panic and without memory that the file has no bytes for.
//!
//! The only test of its program, since all threads of a program share the account of memory.

mod model_file;

use ggml_hsa_cli::model::ModelFile;
use model_file::model;
use peak_alloc::PeakAlloc;
use std::fs;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

const FILES: usize = 20_000;
/// Counts that ask for much: of elements, layers, heads and characters.
const LARGE: [u64; 5] = [u64::MAX, 1 << 40, u32::MAX as u64, 1 << 28, 4096];

/// Changes `file` in one to four places.
fn damage(file: &mut Vec<u8>, random: &mut fastrand::Rng) {
    for _ in 0..random.usize(1..=4) {
        let at = random.usize(..file.len());
        match random.u8(..5) {
            0 => file[at] = random.u8(..),
            1 => file[at] ^= 1 << random.u8(..8),
            2 => file.truncate(at.max(1)),
            3 => {
                let (count, bytes) = (*random.choice(&LARGE).unwrap(), *random.choice(&[4, 8]).unwrap());
                let end = (at + bytes).min(file.len());
                file[at..end].copy_from_slice(&count.to_le_bytes()[..end - at]);
            }
            _ => {
                // A part of the file once more, elsewhere.
                let from = random.usize(..file.len());
                let part = file[from..file.len().min(from + random.usize(1..=64))].to_vec();
                file.splice(at..at, part);
            }
        }
    }
}

#[test]
fn damaged_files_of_models_take_no_more_memory_than_they_have_bytes_for() {
    let (good, folder) = (model("llama"), tempfile::tempdir().unwrap());
    let path = folder.path().join("model.gguf");
    let find = || ModelFile::open(&path).and_then(|file| file.context().map(|context| (context, file.bytes())));
    fs::write(&path, &good).unwrap();
    find().unwrap();
    let (mut random, mut read) = (fastrand::Rng::with_seed(28), 0);
    for number in 0..FILES {
        let mut file = good.clone();
        damage(&mut file, &mut random);
        fs::write(&path, &file).unwrap();
        MEMORY.reset_peak_usage();
        let before = MEMORY.current_usage();
        read += usize::from(find().is_ok());
        let taken = MEMORY.peak_usage() - before;
        // Entries and tensors in memory are a few times as large as in the file; the file is read through a buffer.
        let allowed = 64 * file.len() + (64 << 10);
        assert!(taken <= allowed, "file {number}, of {} bytes: {taken} bytes of memory", file.len());
    }
    assert!(
        (FILES / 20..FILES * 19 / 20).contains(&read),
        "{read} of {FILES} files are read: the damage finds nothing"
    );
}
