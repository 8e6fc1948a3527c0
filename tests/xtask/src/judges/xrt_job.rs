//! What AMD's XRT runs for our program `tests/xrt/judge.py`: containers around our PDIs, made by AMD's xclbinutil, and
//! what to do with them.

use crate::process::run_helper;
use crate::testbed::Testbed;
use aie_hal::ArchRegistry;
use aie_ops::artifact::reference_artifact;
use aie_ops::{DataType, F16Policy, Node, OpParams, Tensor, normalise, table};
use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
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

/// Writes `pdi` and an xclbin around it, for a kernel with so many buffers on so many columns, into a folder of its own. Returns
/// the xclbin.
pub fn make(testbed: &Testbed, folder: &Path, pdi: &[u8], buffers: usize, columns: usize) -> Result<PathBuf> {
    fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    fs::write(folder.join("design.pdi"), pdi)?;
    for (name, section) in [
        ("memory.json", memory_section()),
        ("kernels.json", kernel_section(buffers)),
        ("partition.json", partition_section(columns)),
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

/// The kernels of a generation: their containers and instructions, made in `folder`, as the program wants them described.
pub fn kernels(testbed: &Testbed, folder: &Path, generation: &str) -> Result<Vec<Value>> {
    let arch = ArchRegistry::builtin().get(generation).with_context(|| format!("no generation {generation}"))?;
    // Both sources and the output, columns first.
    let shapes = [
        ("ADD", [[256, 4], [256, 4], [256, 4]]),
        ("MUL_MAT", [[64, 32], [64, 16], [32, 16]]),
        ("MUL", [[512, 2], [512, 2], [512, 2]]),
    ];
    let mut kernels = Vec::new();
    for (name, [first, second, output]) in shapes {
        let op = table::lookup(name).with_context(|| format!("no operation {name}"))?;
        let tensor = |shape: [usize; 2]| Tensor::contiguous(DataType::F32, [shape[0], shape[1], 1, 1]);
        let sources = vec![Some(tensor(first)), Some(tensor(second))];
        let node = Node::new(name, OpParams::default(), tensor(output), sources);
        op.check(&node)?;
        let node = normalise::normalise(op, &node, F16Policy::default())?.node;
        let artifact = reference_artifact(op, &node, &arch)?;
        let folder = folder.join(format!("{generation}-{name}"));
        let container = make(testbed, &folder, artifact.pdi(), artifact.argument_count(), arch.array.columns)?;
        let instructions = folder.join("insts.bin");
        fs::write(&instructions, artifact.instructions())?;
        kernels.push(json!({
            "operation": name, "xclbin": container, "instructions": instructions, "shapes": [first, second, output],
        }));
    }
    Ok(kernels)
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
