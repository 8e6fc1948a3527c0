//! `ggml-hsa check` as a program, on a kernel that is right and on ones that are not.

use aie_conformance::compiled;
use aie_hal::ArchRegistry;
use aie_hal::format::bd::CoreBd;
use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::core_control::PROGRAM_MEMORY;
use aie_hal::format::instructions::{Instruction, InstructionStream, InstructionWriter};
use aie_hal::format::register::TileKind;
use aie_hal::format::stream_switch::{Port, StreamSwitch};
use aie_hal::format::{pdi, tile_address};
use aie_isa::Isa;
use rstest::rstest;
use std::fs;
use std::process::{Command, Output};

fn check(folder: &tempfile::TempDir, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    command.current_dir(folder.path()).arg("check").args(arguments).output().unwrap()
}

/// A kernel's files, its stream as it is and without its waits.
fn kernel(arch: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let artifact = compiled::add(&ArchRegistry::builtin().get(arch).unwrap(), 3, 2);
    let stream = InstructionStream::parse(artifact.instructions()).unwrap();
    let mut impatient = InstructionWriter::new(stream.header());
    for operation in stream.operations() {
        if !matches!(operation, Instruction::Sync { .. }) {
            impatient.push(&operation);
        }
    }
    for (name, bytes) in [
        ("add.pdi", artifact.pdi()),
        ("insts.bin", artifact.instructions()),
        ("impatient.bin", &impatient.finish().unwrap()),
        ("text.pdi", b"no PDI"),
    ] {
        fs::write(folder.path().join(name), bytes).unwrap();
    }
    folder
}

#[rstest]
fn a_kernel_without_errors(#[values("aie2", "aie2p")] arch: &str) {
    let folder = kernel(arch);
    let ran = check(&folder, &["add.pdi", "insts.bin"]);
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success(), "{text}");
    assert!(
        text.starts_with(&format!("{arch}: 1 program in 1 core, ")) && text.contains(": 0 errors, 0 warnings"),
        "{text}"
    );
    assert!(check(&folder, &["add.pdi", "--arch", arch]).status.success());
}

#[test]
fn what_is_wrong_is_named_with_its_place() {
    let folder = kernel("aie2");
    let ran = check(&folder, &["add.pdi", "impatient.bin", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&ran.stdout).unwrap();
    let found = &report["findings"][0];
    assert_eq!((ran.status.code(), &found["severity"], &found["rule"]), (Some(1), &"error".into(), &"array".into()));
    assert!(
        found["what"].as_str().unwrap().starts_with("the stream does not wait for all tokens of S2MM 0"),
        "{found}"
    );
    assert!(found["place"].as_str().unwrap().contains("(0,0)"), "{found}");
}

/// A PDI that the emulated array does not take is one with an error, and not unreadable.
#[test]
fn what_cannot_be_loaded_is_a_finding() {
    let (folder, mut cdo) = (tempfile::tempdir().unwrap(), CdoBuilder::new());
    for write in StreamSwitch(TileKind::Mem).circuit(Port::South(0), Port::North(4)).unwrap() {
        cdo.write(tile_address(0, 1, write.offset).into(), write.value);
    }
    fs::write(folder.path().join("unwired.pdi"), pdi::write(&cdo).unwrap()).unwrap();
    let ran = check(&folder, &["unwired.pdi", "--arch", "aie2"]);
    let text = String::from_utf8(ran.stdout).unwrap();
    assert!(text.contains("its switch has no wire from South 0 to North 4"), "{text}");
    assert_eq!(ran.status.code(), Some(1));
}

/// A core with one frame on its stack, and a descriptor of 64 words.
#[rstest]
#[case::apart("movxm sp, #0x70000", 512, 0x4000, None)]
#[case::in_one_bank(
    "movxm sp, #0x70000",
    512,
    0x3f80,
    Some(
        "warning: core (0,2): the stack takes 512 bytes, 0x70000 to 0x70200, in one bank (16384 bytes) with BD 3 (0x73f80 to 0x74080)"
    )
)]
#[case::over_a_buffer(
    "movxm sp, #0x70000",
    1056,
    0x400,
    Some("error: core (0,2): the stack takes 1056 bytes, 0x70000 to 0x70420, which overlap BD 3 (0x70400 to 0x70500)")
)]
#[case::beyond_memory(
    "movxm sp, #0x7ffc0",
    96,
    0x400,
    Some(
        "error: core (0,2): the stack takes 96 bytes, 0x7ffc0 to 0x80020, and the core's own memory is 0x70000 to 0x80000"
    )
)]
#[case::no_constant(
    "mov sp, p0",
    96,
    0x400,
    Some(
        "warning: core (0,2): how deep the stack gets is not known: sp is set at 0x0 to a value that is not constant"
    )
)]
fn stacks_and_buffers(#[case] start: &str, #[case] frame: u32, #[case] buffer: u32, #[case] expected: Option<&str>) {
    let text = format!("{start}\npaddb [sp], #{frame}\nst r0, [sp, #-4]\npaddb [sp], #-{frame}\ndone");
    let mut code = Isa::aie2().assemble(&text).unwrap();
    code.resize(code.len().next_multiple_of(4), 0);
    let words: Vec<u32> = code.as_chunks::<4>().0.iter().map(|bytes| u32::from_le_bytes(*bytes)).collect();
    let descriptor = CoreBd { address: buffer / 4, length: 64, valid: true, ..CoreBd::default() };
    let (folder, mut cdo) = (tempfile::tempdir().unwrap(), CdoBuilder::new());
    cdo.dma_write(tile_address(0, 2, PROGRAM_MEMORY).into(), &words);
    cdo.dma_write(tile_address(0, 2, CoreBd::register(3)).into(), &descriptor.encode().unwrap());
    fs::write(folder.path().join("stack.pdi"), pdi::write(&cdo).unwrap()).unwrap();
    let ran = check(&folder, &["stack.pdi", "--arch", "aie2", "--warnings"]);
    let text = String::from_utf8(ran.stdout).unwrap();
    let found: Vec<&str> = text.lines().filter(|line| line.ends_with("[stack]")).collect();
    match expected {
        None => assert_eq!(found, [""; 0]),
        Some(expected) => assert!(found.len() == 1 && found[0].starts_with(expected), "{text}"),
    }
    let is_error = expected.is_some_and(|expected| expected.starts_with("error"));
    assert_eq!(ran.status.code(), Some(i32::from(is_error)), "{text}");
}

#[rstest]
#[case(&["text.pdi", "insts.bin"], "text.pdi")]
#[case(&["nothing.pdi"], "nothing.pdi")]
#[case(&["add.pdi"], "a PDI does not say which generation it is for")]
fn what_cannot_be_read_is_said(#[case] arguments: &[&str], #[case] expected: &str) {
    let ran = check(&kernel("aie2"), arguments);
    let text = String::from_utf8(ran.stderr).unwrap();
    assert!(text.contains(expected), "{text}");
    assert_eq!(ran.status.code(), Some(2));
}
