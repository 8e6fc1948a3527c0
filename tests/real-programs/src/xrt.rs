//! AMD's XRT on the simulated kernel device, as another way to the array: a program's container as it is, its buffers from files.

use crate::manifest::Program;
use anyhow::{Context, Result, ensure};
use serde_json::json;
use std::ffi::OsString;
use std::fs;
use std::path::Path;
use std::process::Command;

pub struct Xrt {
    /// The words that start `tests/xrt/program.py` with XRT's Python module on the simulated kernel device.
    words: Vec<OsString>,
    work: tempfile::TempDir,
}

impl Xrt {
    /// None without words.
    pub fn started_by(words: &[OsString]) -> Result<Option<Self>> {
        let work = || tempfile::Builder::new().prefix("programs-").tempdir();
        let xrt = (!words.is_empty()).then(|| Ok::<_, std::io::Error>(Self { words: words.to_vec(), work: work()? }));
        xrt.transpose().context("cannot make a folder for temporary files")
    }

    /// Runs a program, whose image is an xclbin, on the bytes of its arguments.
    pub fn run(&self, program: &Program, folder: &Path, stream: &[u8], arguments: &mut [Vec<u8>]) -> Result<()> {
        let work = self.work.path();
        let instructions = work.join("instructions.bin");
        fs::write(&instructions, stream)?;
        let files = |index: usize| ["before", "after"].map(|when| work.join(format!("{index}-{when}.bin")));
        let mut described = Vec::new();
        for (index, bytes) in arguments.iter().enumerate() {
            let [before, after] = files(index);
            fs::write(&before, bytes)?;
            described.push(json!({"before": before, "after": after}));
        }
        let xclbin = std::path::absolute(folder.join(&program.image))?;
        let job = json!({"xclbin": xclbin, "instructions": instructions, "arguments": described});
        let file = work.join("program.json");
        fs::write(&file, job.to_string())?;
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]).arg(&file).env("AMDXDNA_SIM_DEVICES", &program.arch);
        let output = command.output().with_context(|| format!("cannot start {}", self.words[0].display()))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{}: {}", output.status, said.trim());
        for (index, bytes) in arguments.iter_mut().enumerate() {
            *bytes = fs::read(&files(index)[1])?;
        }
        Ok(())
    }
}
