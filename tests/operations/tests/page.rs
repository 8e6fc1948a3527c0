//! The page in the documentation is what the program prints.

use std::process::Command;

#[test]
fn the_docs_carry_this_page() {
    let printed = Command::new(env!("CARGO_BIN_EXE_aie-operations")).output().unwrap();
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let printed = String::from_utf8(printed.stdout).unwrap();
    let there = include_str!("../../../docs/operations.md");
    for (number, (there, printed)) in there.lines().zip(printed.lines()).enumerate() {
        assert_eq!(there, printed, "line {}; write it with `cargo xtask gen operations --write`", number + 1);
    }
    assert_eq!(there.len(), printed.len(), "write it with `cargo xtask gen operations --write`");
}
