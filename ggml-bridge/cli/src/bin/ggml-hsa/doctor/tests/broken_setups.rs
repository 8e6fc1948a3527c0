//! Machines in order whose settings, library, llama.cpp or AMD runtime are not.

use super::super::finding::Level::{Error, Warning};
use super::broken::{Broken, row};
use super::rig::{BACKEND, GGML, HERE, LIBRARY, LOADER};

/// In parts, since what is in quotes has to be a setting.
const MISSPELT: &str = concat!("GGML_HSA_", "DEVCIES");

pub const SETUPS: &[Broken] = &[
    // Settings.
    row(
        "a backend that is off",
        |rig| rig.set("GGML_HSA", "off"),
        ("settings", Error),
        ("GGML_HSA is off", "unset GGML_HSA"),
        |rig| rig.unset("GGML_HSA"),
    ),
    row(
        "a list of no devices",
        |rig| rig.set("GGML_HSA_DEVICES", ""),
        ("settings", Error),
        ("GGML_HSA_DEVICES is set and empty", "unset GGML_HSA_DEVICES"),
        |rig| rig.unset("GGML_HSA_DEVICES"),
    ),
    row(
        "a variable that hides the NPU",
        |rig| rig.set("AIE_HAL_VISIBLE_DEVICES", ""),
        ("settings", Error),
        ("AIE_HAL_VISIBLE_DEVICES hides pci-0000:c6:00.1", "unset AIE_HAL_VISIBLE_DEVICES"),
        |rig| rig.unset("AIE_HAL_VISIBLE_DEVICES"),
    ),
    row(
        "a variable that shows an NPU that is not there",
        |rig| rig.set("AIE_HAL_VISIBLE_DEVICES", "3"),
        ("settings", Error),
        ("`3` names no NPU", "unset AIE_HAL_VISIBLE_DEVICES"),
        |rig| rig.unset("AIE_HAL_VISIBLE_DEVICES"),
    ),
    row(
        "an invalid value",
        |rig| rig.set("GGML_HSA_ENABLE_LOG", "banana"),
        ("settings", Warning),
        ("`banana` is not valid", "unset GGML_HSA_ENABLE_LOG"),
        |rig| rig.set("GGML_HSA_ENABLE_LOG", "1"),
    ),
    row(
        "a misspelt name",
        |rig| rig.set(MISSPELT, "mock"),
        ("settings", Warning),
        ("did you mean GGML_HSA_DEVICES", "unset GGML_HSA_DEVCIES"),
        |rig| rig.unset(MISSPELT),
    ),
    row(
        "a directory of kernels that does not exist",
        |rig| rig.set("GGML_HSA_KERNEL_DIR", "/home/ada/kernels"),
        ("settings", Error),
        ("GGML_HSA_KERNEL_DIR names a path that does not exist", "unset GGML_HSA_KERNEL_DIR"),
        |rig| rig.folder("/home/ada/kernels"),
    ),
    row(
        "a file in the place of a directory of kernels",
        |rig| {
            rig.set("GGML_HSA_KERNEL_DIR", "/home/ada/kernels.tar");
            rig.write("/home/ada/kernels.tar", "");
        },
        ("settings", Error),
        ("GGML_HSA_KERNEL_DIR names a file", "unset GGML_HSA_KERNEL_DIR"),
        |rig| rig.unset("GGML_HSA_KERNEL_DIR"),
    ),
    row(
        "a cache that cannot be written",
        |rig| rig.forbid("/home/ada", "root", 0o755, false),
        ("cache", Warning),
        ("cannot be written", "sudo install -d"),
        |rig| rig.allow_all(),
    ),
    // The library and llama.cpp.
    row(
        "no library",
        |rig| rig.remove(LIBRARY),
        ("library", Error),
        ("cannot find libggml-hsa.so; tried", "cmake --install"),
        |rig| rig.elf(LIBRARY, HERE, BACKEND),
    ),
    row(
        "a library that was cut off",
        |rig| rig.write(LIBRARY, "\u{7f}ELF"),
        ("library", Error),
        ("cannot be read", "install the package again"),
        |rig| rig.elf(LIBRARY, HERE, BACKEND),
    ),
    row(
        "a page of a server in the library's place",
        |rig| rig.write(LIBRARY, "<!DOCTYPE html><title>404 Not Found</title>"),
        ("library", Error),
        ("does not begin as ELF files do", "install the package again"),
        |rig| rig.elf(LIBRARY, HERE, BACKEND),
    ),
    row(
        "another library in the library's place",
        |rig| rig.elf(LIBRARY, HERE, &["malloc"]),
        ("library", Error),
        ("it is no backend of ggml", "install the package again"),
        |rig| rig.elf(LIBRARY, HERE, BACKEND),
    ),
    row(
        "a library for another processor",
        |rig| rig.elf(LIBRARY, 8, &[]),
        ("library", Error),
        ("for another processor", "install the package again"),
        |rig| rig.elf(LIBRARY, HERE, BACKEND),
    ),
    row(
        "a variable with a library that is gone",
        |rig| rig.set("GGML_BACKEND_PATH", "/home/ada/old/libggml-hsa.so"),
        ("library", Error),
        ("names a file that does not exist", "ggml-hsa env"),
        |rig| rig.set("GGML_BACKEND_PATH", LIBRARY),
    ),
    row(
        "a variable with a folder",
        |rig| rig.set("GGML_BACKEND_PATH", "/opt/ggml-hsa/lib"),
        ("library", Error),
        ("is a folder", "ggml-hsa env"),
        |rig| rig.set("GGML_BACKEND_PATH", LIBRARY),
    ),
    row(
        "a variable with a list",
        |rig| rig.set("GGML_BACKEND_PATH", "/opt/a.so:/opt/b.so"),
        ("library", Error),
        ("is a list", "ggml-hsa env"),
        |rig| rig.set("GGML_BACKEND_PATH", LIBRARY),
    ),
    row(
        "a variable with another backend",
        |rig| {
            rig.elf("/opt/libggml-vulkan.so", HERE, BACKEND);
            rig.set("GGML_BACKEND_PATH", "/opt/libggml-vulkan.so");
        },
        ("library", Error),
        ("names another backend", "ggml-hsa env"),
        |rig| rig.unset("GGML_BACKEND_PATH"),
    ),
    row(
        "a variable with another copy",
        |rig| {
            rig.elf("/home/ada/libggml-hsa.so", HERE, BACKEND);
            rig.set("GGML_BACKEND_PATH", "/home/ada/libggml-hsa.so");
        },
        ("library", Warning),
        ("names another copy", "ggml-hsa env"),
        |rig| rig.set("GGML_BACKEND_PATH", LIBRARY),
    ),
    row(
        "no llama.cpp",
        |rig| rig.remove("/usr/bin/llama-cli"),
        ("llama.cpp", Warning),
        ("no program of llama.cpp is on PATH", "sudo apt install llama.cpp"),
        |rig| rig.write("/usr/bin/llama-server", ""),
    ),
    row(
        "a ggml from before backends were libraries",
        |rig| rig.elf(GGML, 62, &["ggml_init"]),
        ("ggml", Error),
        ("too old to have backends as libraries", "GGML_BACKEND_DL=ON"),
        |rig| rig.ggml(&[]),
    ),
    row(
        "a ggml whose loader does not know the variable",
        |rig| rig.elf(LOADER, 62, &["ggml_backend_load_all"]),
        ("ggml", Error),
        ("does not know GGML_BACKEND_PATH", "GGML_BACKEND_DL=ON"),
        |rig| rig.elf(LOADER, 62, &["GGML_BACKEND_PATH"]),
    ),
    row(
        "a ggml that is newer than this library",
        |rig| {
            rig.remove(GGML);
            rig.elf("/usr/lib/x86_64-linux-gnu/libggml-base.so.0.99.0", 62, &["ggml_backend_buffer_init"]);
        },
        ("ggml", Warning),
        ("ggml 0.99.0", "update this library"),
        |rig| {
            rig.remove("/usr/lib/x86_64-linux-gnu/libggml-base.so.0.99.0");
            rig.ggml(&["ggml_backend_tensor_set_2d"]);
        },
    ),
    // AMD's runtime, where it is requested.
    row(
        "AMD's runtime, which is not installed",
        |rig| {
            rig.set("GGML_HSA_RUNTIME", "rocr");
            rig.write("/dev/kfd", "");
            rig.write("/sys/devices/virtual/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\n");
        },
        ("rocr", Error),
        ("libhsa-runtime64.so.1 is in none", "sudo apt install libhsa-runtime64-1"),
        |rig| rig.write("/usr/lib/x86_64-linux-gnu/libhsa-runtime64.so.1", ""),
    ),
    row(
        "AMD's runtime without the KFD",
        |rig| {
            rig.set("GGML_HSA_RUNTIME", "rocr");
            rig.write("/opt/rocm/lib/libhsa-runtime64.so.1", "");
        },
        ("npu", Error),
        ("kfd does not exist", "sudo modprobe amdgpu"),
        |rig| rig.unset("GGML_HSA_RUNTIME"),
    ),
];
