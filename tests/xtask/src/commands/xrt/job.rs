//! What AMD's XRT runs for our program `tests/xrt/judge.py`: containers around our PDIs, made by AMD's xclbinutil, and
//! what to do with them.

use crate::build;
use crate::process::{run, run_helper};
use crate::testbed::Testbed;
use anyhow::Result;
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(60);
/// Name of the kernel in the container.
const KERNEL: &str = "REFERENCE";
/// Joins the kernel and its PDI. Any number does, as long as both have the same.
const KERNEL_ID: &str = "0x901";
/// Buffers that mlir-aie declares, however many a kernel has. XRT makes every command as long as its declaration, and firmware has
/// been seen to want an even number of words in short ones, which three buffers would not give.
const DECLARED: usize = 5;
/// Bytes before the buffers among the arguments: opcode, address and number of the instructions.
const BUFFERS_AT: usize = 0x14;

/// The program of this folder's crate `tests/xrt`, which writes kernels.
const PACKAGE: &str = "aie-xrt-kernels";

/// What it has written.
#[derive(Deserialize)]
pub struct Kernels {
    operations: Vec<Operation>,
    pub code: Code,
}

/// A reference kernel.
#[derive(Deserialize)]
struct Operation {
    name: String,
    /// Of both sources and of the result, columns first.
    shapes: [[usize; 2]; 3],
    kernel: Kernel,
}

/// A kernel that adds a number to every word.
#[derive(Deserialize)]
pub struct Code {
    pub addend: u32,
    pub words: u32,
    pub kernel: Kernel,
}

#[derive(Deserialize)]
pub struct Kernel {
    pdi: PathBuf,
    pub instructions: PathBuf,
    buffers: usize,
    columns: usize,
}

impl Kernel {
    /// The folder that it has for itself.
    pub fn folder(&self) -> &Path {
        self.pdi.parent().unwrap_or(Path::new("."))
    }

    /// Writes an xclbin around it.
    pub fn container(&self, testbed: &Testbed) -> Result<PathBuf> {
        let folder = self.folder();
        for (name, section) in [
            ("memory.json", memory_section()),
            ("kernels.json", kernel_section(self.buffers)),
            ("partition.json", partition_section(self.columns)),
        ] {
            fs::write(folder.join(name), serde_json::to_vec_pretty(&section)?)?;
        }
        let made = folder.join("design.xclbin");
        let mut command = testbed.command_for(&testbed.xrt("xclbinutil")?);
        command
            .current_dir(folder)
            .args(["--add-replace-section", "MEM_TOPOLOGY:JSON:memory.json", "--add-kernel", "kernels.json"])
            .args(["--add-replace-section", "AIE_PARTITION:JSON:partition.json", "--force", "--quiet", "--output"])
            .arg(&made);
        run_helper(&mut command, LIMIT)?;
        Ok(made)
    }
}

impl Kernels {
    /// Has those of a generation written into `folder`.
    pub fn write(folder: &Path, generation: &str, offline: bool) -> Result<Self> {
        let program = build::development_program(PACKAGE, offline)?;
        run(Command::new(program).arg(generation).arg(folder), LIMIT)?.json(PACKAGE)
    }

    /// Those of operations in containers, as `judge.py` wants them described.
    pub fn described(&self, testbed: &Testbed) -> Result<Vec<Value>> {
        let describe = |Operation { name, shapes, kernel }: &Operation| {
            let container = kernel.container(testbed)?;
            Ok(json!({
                "operation": name, "xclbin": container, "instructions": kernel.instructions, "shapes": shapes,
            }))
        };
        self.operations.iter().map(describe).collect()
    }
}

/// Two places for buffers: host memory and the device heap.
fn memory_section() -> Value {
    let place = |tag: &str, kilobytes: &str| json!({"m_type": "MEM_DRAM", "m_used": "1", "m_sizeKB": kilobytes, "m_tag": tag, "m_base_address": "0x4000000"});
    json!({"mem_topology": {"m_count": "2", "m_mem_data": [place("HOST", "0x10000"), place("SRAM", "0xc000")]}})
}

/// The kernel's arguments: opcode, instructions, their number, and the buffers.
fn kernel_section(buffers: usize) -> Value {
    let scalar = |name: &str, kind: &str, offset: usize| json!({"name": name, "address-qualifier": "SCALAR", "type": kind, "offset": format!("{offset:#x}")});
    let pointer = |name: String, place: &str, offset: usize| {
        json!({"name": name, "memory-connection": place, "address-qualifier": "GLOBAL", "type": "void *",
               "offset": format!("{offset:#x}")})
    };
    let mut arguments = vec![
        scalar("opcode", "uint64_t", 0),
        pointer("instructions".to_owned(), "SRAM", 8),
        scalar("words", "uint32_t", 0x10),
    ];
    arguments.extend(
        (0..buffers.max(DECLARED)).map(|index| pointer(format!("buffer{index}"), "HOST", BUFFERS_AT + 8 * index)),
    );
    json!({"ps-kernels": {"kernels": [{
        "name": KERNEL, "type": "dpu",
        "extended-data": {"subtype": "DPU", "functional": "0", "dpu_kernel_id": KERNEL_ID},
        "arguments": arguments, "instances": [{"name": "instance"}],
    }]}})
}

/// The partition of the array and the PDI for it.
fn partition_section(columns: usize) -> Value {
    json!({"aie_partition": {
        "name": "QoS", "operations_per_cycle": "2048", "inference_fingerprint": "1", "pre_post_fingerprint": "1",
        "partition": {"column_width": columns.to_string(), "start_columns": ["0"]},
        "PDIs": [{
            "uuid": "00000000-0000-0000-0000-000000000001", "file_name": "design.pdi",
            "cdo_groups": [{
                "name": "DPU", "type": "PRIMARY", "pdi_id": "0x01", "dpu_kernel_ids": [KERNEL_ID], "pre_cdo_groups": ["0xC1"],
            }],
        }],
    }})
}

/// The program that uses XRT's Python module, from the root of the checkout.
pub const JUDGE: &str = "tests/xrt/judge.py";
pub const LIST: u32 = 24;
/// What XRT does with each kernel, and how often.
pub const PARTS: [(&str, u32); 4] = [("single", 1), ("repeated", 200), ("runlist", LIST), ("contexts", 50)];

#[derive(Deserialize)]
pub struct Printed {
    pub part: String,
    pub dispatches: u64,
}

/// One part for `kernels`, as the program reads it.
pub fn job(kernels: &[Value], part: &str, count: u32) -> Value {
    json!({"kernels": kernels, "part": part, "count": count})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_the_instructions() {
        let offsets = |buffers| -> Vec<String> {
            let kernels = kernel_section(buffers);
            let arguments = kernels["ps-kernels"]["kernels"][0]["arguments"].as_array().unwrap();
            arguments.iter().filter_map(|argument| argument["offset"].as_str().map(str::to_owned)).collect()
        };
        let five = ["0x0", "0x8", "0x10", "0x14", "0x1c", "0x24", "0x2c", "0x34"];
        assert_eq!(offsets(3), five);
        assert_eq!(offsets(6)[..8], five);
        assert_eq!(offsets(6)[8], "0x3c");
    }

    #[test]
    fn kernel_and_pdi_are_joined() {
        let kernel = &kernel_section(1)["ps-kernels"]["kernels"][0]["extended-data"]["dpu_kernel_id"];
        assert_eq!(kernel, &partition_section(4)["aie_partition"]["PDIs"][0]["cdo_groups"][0]["dpu_kernel_ids"][0]);
    }
}
