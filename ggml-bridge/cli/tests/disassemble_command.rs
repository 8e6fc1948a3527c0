//! `ggml-hsa disassemble` as a program: what it prints, which files it takes, and its exit codes.

mod kernel_files;

use aie_hal::format::cdo::CdoBuilder;
use aie_hal::format::instructions::{Header, InstructionWriter};
use aie_hal::format::pdi;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Files {
    root: tempfile::TempDir,
}

impl Files {
    /// A mem tile whose DMA sends to a core tile, with a lock at 3; a stream that sets the lock to 5.
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let mut cdo = CdoBuilder::new();
        cdo.write(0x1B_002C, 0x8000_0000).write(0x1B_0100, 0x8000_0000);
        cdo.write(0x23_F004, 0x8000_0005).write(0x23_F114, 0x8000_0000).write(0x1C_0020, 3);
        fs::write(root.path().join("k.pdi"), pdi::write(&cdo).unwrap()).unwrap();
        let mut writer = InstructionWriter::new(Header { generation: 3, rows: 6, columns: 1, mem_tile_rows: 1 });
        let stream = writer.block_write(0x1C_0020, &[5]).finish().unwrap();
        fs::write(root.path().join("k.txt"), kernel_files::text(&stream)).unwrap();
        fs::write(root.path().join("k.bin"), stream).unwrap();
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    /// An xclbin with so many copies of the PDI.
    fn xclbin(&self, count: usize) -> PathBuf {
        let pdi = fs::read(self.path("k.pdi")).unwrap();
        let path = self.path(&format!("k{count}.xclbin"));
        fs::write(&path, kernel_files::xclbin(&pdi, count)).unwrap();
        path
    }
}

/// Exit code, standard output, standard error.
fn run(files: &[&Path], options: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ggml-hsa"));
    let Output { status, stdout, stderr } = command.arg("disassemble").args(files).args(options).output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn text_json_and_drawing_of_the_same_kernel() {
    let files = Files::new();
    let (pdi, stream) = (files.path("k.pdi"), files.path("k.bin"));
    let (code, text, error) = run(&[&pdi, &stream], &[]);
    assert_eq!((code, &*error), (0, ""));
    assert!(
        text.contains("mem (0,1) MM2S 0 -> core (0,2) S2MM 0") && text.contains("0  mem (0,1) lock 2 = 5"),
        "{text}"
    );
    assert!(!text.contains('\u{1b}'), "no colours");

    let (code, text, _) = run(&[&pdi, &files.path("k.txt")], &["--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &json["arch"], &json["tiles"][0]["locks"][0]["value"]), (0, &"aie2".into(), &3.into()));

    let drawing = files.path("k.svg");
    let (code, text, _) = run(&[&pdi, &stream], &["--svg", drawing.to_str().unwrap()]);
    assert_eq!((code, &*text), (0, ""));
    let (_, printed, _) = run(&[&pdi, &stream], &["--svg", "-"]);
    assert_eq!(fs::read_to_string(drawing).unwrap(), printed);
    assert!(printed.starts_with("<?xml"));

    let (code, text, _) = run(&[&pdi], &["--arch", "aie2p", "--tile", "0,1", "--no-code"]);
    assert!(code == 0 && text.contains("mem tile") && !text.contains("core tile"), "{text}");
}

#[test]
fn the_pdi_of_an_xclbin_is_taken() {
    let files = Files::new();
    let (code, text, error) = run(&[&files.xclbin(1), &files.path("k.bin")], &[]);
    assert!(code == 0 && text.contains("mem tile"), "{error}");
    let two = files.xclbin(2);
    let (code, _, error) = run(&[&two], &["--arch", "aie2"]);
    assert!(code == 2 && error.contains("has 2 PDIs; choose one with --pdi-index, 0 to 1"), "{error}");
    assert_eq!(run(&[&two], &["--arch", "aie2", "--pdi-index", "1"]).0, 0);
    let (code, _, error) = run(&[&two], &["--arch", "aie2", "--pdi-index", "2"]);
    assert!(code == 2 && error.contains("--pdi-index can be 0 to 1"), "{error}");
}

#[test]
fn what_cannot_be_used_is_said() {
    let files = Files::new();
    let pdi = files.path("k.pdi");
    let elf =
        |machine: u16| [&b"\x7fELF\x01\x01\x01\0\0\0\0\0\0\0\0\0\x02\0"[..], &machine.to_le_bytes(), &[0; 32]].concat();
    fs::write(files.path("core.elf"), elf(264)).unwrap();
    fs::write(files.path("program"), elf(62)).unwrap();
    fs::write(files.path("k.cdo"), [&4_u32.to_le_bytes()[..], b"XLNX", &[0; 12]].concat()).unwrap();
    for (arguments, options, expected) in [
        (vec![pdi.clone()], vec![], "add its instruction stream, or --arch with one of: aie2, aie2p"),
        (vec![files.path("core.elf")], vec!["--arch", "aie2"], "core.elf is the ELF file of one core; give the PDI"),
        (vec![files.path("program")], vec!["--arch", "aie2"], "program is an ELF file of machine 62, and no kernel"),
        (
            vec![files.path("k.cdo")],
            vec!["--arch", "aie2"],
            "k.cdo is a CDO, the list of writes in a PDI; give the PDI",
        ),
        (vec![pdi.clone()], vec!["--arch", "aie9"], "there is no generation `aie9`; --arch can be: aie2, aie2p"),
        (vec![files.path("none.pdi")], vec!["--arch", "aie2"], "none.pdi cannot be read: "),
        (vec![files.path("k.txt")], vec!["--arch", "aie2"], "k.txt: PDI at offset 0x0: expected"),
        (vec![pdi.clone(), pdi.clone()], vec![], "k.pdi: instructions at offset 0x0: expected transaction format 0.1"),
        (vec![pdi.clone()], vec!["--arch", "aie2", "--tile", "3,3"], "it does: mem (0,1), core (0,2)"),
        (vec![pdi.clone()], vec!["--arch", "aie2", "--tile", "3"], "`3` is not a tile; possible: COLUMN,ROW"),
        (vec![pdi.clone()], vec!["--arch", "aie2", "--pdi-index", "1"], "which is not an xclbin"),
    ] {
        let arguments: Vec<&Path> = arguments.iter().map(PathBuf::as_path).collect();
        let (code, text, error) = run(&arguments, &options);
        assert_eq!((code, &*text), (2, ""), "{arguments:?}");
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn a_kernel_that_cannot_work_has_exit_code_1() {
    let files = Files::new();
    let mut cdo = CdoBuilder::new();
    // A route from the mem tile to a core tile whose port is off.
    cdo.write(0x1B_002C, 0x8000_0000).write(0x1B_0100, 0x8000_0000);
    let path = files.path("off.pdi");
    fs::write(&path, pdi::write(&cdo).unwrap()).unwrap();
    let (code, text, _) = run(&[&path], &["--arch", "aie2"]);
    assert!(code == 1 && text.contains("problems\n") && text.contains("South 0, which is off"), "{text}");
}
