//! Containers for XRT: an xclbin around one of our PDIs, made by AMD's xclbinutil.

use crate::process::run_helper;
use crate::testbed::Testbed;
use anyhow::{Context, Result};
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
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    fs::write(folder.join("design.pdi"), pdi)?;
    for (name, section) in
        [("memory.json", memory()), ("kernels.json", kernels(buffers)), ("partition.json", partition(columns))]
    {
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
fn memory() -> Value {
    let place = |tag: &str, kilobytes: &str| json!({"m_type": "MEM_DRAM", "m_used": "1", "m_sizeKB": kilobytes, "m_tag": tag, "m_base_address": "0x4000000"});
    json!({"mem_topology": {"m_count": "2", "m_mem_data": [place("HOST", "0x10000"), place("SRAM", "0xc000")]}})
}

/// The kernel's arguments: opcode, instructions, their number, and the buffers.
fn kernels(buffers: usize) -> Value {
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
fn partition(columns: usize) -> Value {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_follow_the_instructions() {
        let offsets = |buffers| -> Vec<String> {
            let kernels = kernels(buffers);
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
        let kernel = &kernels(1)["ps-kernels"]["kernels"][0]["extended-data"]["dpu_kernel_id"];
        assert_eq!(kernel, &partition(4)["aie_partition"]["PDIs"][0]["cdo_groups"][0]["dpu_kernel_ids"][0]);
    }
}
