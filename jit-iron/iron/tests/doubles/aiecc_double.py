#!/usr/bin/env python3
"""A TEST DOUBLE of aiecc. It is not aiecc and compiles nothing: IRON itself has not run in these tests.

It takes the options that aiecc of one generation takes, rejects all others with that generation's message, checks what a line
refers to, and writes the two files it was given as a kernel. Tests link it as `aiecc` into a folder of PATH.

Environment:
  DOUBLE_IRON          1.3.1 (default), 1.4.0 (Chess is still the default) or 1.4.4
  DOUBLE_PDI           file to copy as the PDI
  DOUBLE_INSTRUCTIONS  file to copy as the instructions
  DOUBLE_LOG           file to which each run but --help adds a JSON line: program, arguments, directory
  DOUBLE_AIECC         fail, crash, killed, print, nothing, or hang=FILE: writes its process and its child's to FILE, and waits;
                       stray=FILE: the same with a child in a session of its own
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

IRON = os.environ.get("DOUBLE_IRON", "1.3.1")
NEW = IRON.startswith("1.4")

# Options of both generations: with a value, and without.
VALUES = {"peano", "tmpdir", "npu-insts-name", "pdi-name", "xclbin-name", "alloc-scheme", "device-name", "sequence-name"}
SWITCHES = {"verbose", "unified", "no-unified", "bf16-emulation", "dump-intermediates", "xchesscc", "xbridge", "no-materialize"}
if NEW:
    VALUES |= {"output-dir", "get", "elf-name", "full-elf-name", "placer"}
    SWITCHES |= {"emit-dot", "progress", "no-progress"}
    # Not options to the parser: rewritten before it runs, and not in the help.
    SELECTORS = {"input-with-addresses", "core-elfs", "npu-insts", "elf", "cdo", "pdi", "txn", "ctrlpkt", "xclbin", "full-elf"}
else:
    SWITCHES |= {"no-compile-host", "compile-host", "aie-generate-npu-insts", "aie-generate-pdi", "aie-generate-xclbin"}
    SWITCHES |= {"aie-generate-cdo", "aie-generate-elf", "aie-generate-txn", "aie-generate-ctrlpkt", "generate-full-elf"}
    SELECTORS = set()
if IRON in ("1.3.1", "1.4.0"):
    SWITCHES |= {"no-xchesscc", "no-xbridge"}


def error(text: str) -> "NoReturn":
    print(f"aiecc: {text}", file=sys.stderr)
    sys.exit(1)


def help_text() -> str:
    lines = [f"OVERVIEW: test double of aiecc {IRON}", "USAGE: aiecc [options] <input mlir>", "OPTIONS:"]
    lines += [f"  --{name}=<string>" for name in sorted(VALUES)]
    lines += [f"  --{name}" for name in sorted(SWITCHES)]
    if NEW:
        lines.append("  outputs also have shorthands, such as --get-xclbin")
    return "\n".join(lines)


def parse(arguments: list) -> tuple:
    """Options with their values, chosen outputs, inputs."""
    options, outputs, inputs = {}, set(), []
    for argument in arguments:
        name, equals, value = argument.removeprefix("--").partition("=")
        if not argument.startswith("-"):
            inputs.append(argument)
        elif NEW and name.startswith("get-"):
            if name.removeprefix("get-") not in SELECTORS:
                error(f"unknown output selector '{argument}'; available selectors are: {sorted(SELECTORS)}")
            outputs.add(name.removeprefix("get-"))
        elif not argument.startswith("--") or name not in (VALUES if equals else SWITCHES):
            error(f"Unknown command line argument '{argument}'.  Try: 'aiecc --help'")
        elif name in options:
            error(f"for the --{name} option: may only occur zero or one times!")
        else:
            options[name] = value
    outputs |= {name.removeprefix("aie-generate-") for name in options if name.startswith("aie-generate-")}
    return options, outputs, inputs


def compile_design(arguments: list) -> None:
    options, outputs, inputs = parse(arguments)
    if len(inputs) != 1 or not Path(inputs[0]).is_file():
        error(f"one input file is needed, not {inputs}")
    if IRON != "1.4.4" and not {"no-xchesscc", "no-xbridge"} <= options.keys():
        error("'xchesscc_wrapper' failed: no such file (Chess is the default, and not installed)")
    if not (Path(options.get("peano", "")) / "bin" / "clang++").is_file():
        error("Could not find Peano compiler tools")
    work = Path(options.get("tmpdir", "aie.mlir.prj"))
    if not work.is_dir():
        error(f"{work} is not a folder")
    for name in re.findall(r'link_with = "([^"]+)"', Path(inputs[0]).read_text(encoding="utf-8")):
        if not any((folder / name).is_file() for folder in (Path.cwd(), work, Path(inputs[0]).parent)):
            error(f"ld.lld: cannot open {name}")
    given = {"pdi": ("pdi-name", "DOUBLE_PDI"), "npu-insts": ("npu-insts-name", "DOUBLE_INSTRUCTIONS")}
    for output in sorted(outputs & given.keys()):
        option, variable = given[output]
        if option not in options:
            error(f"this double needs --{option}")
        shutil.copyfile(os.environ[variable], Path(options.get("output-dir", "."), options[option]))


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--help"]:
        print(help_text())
        return 0
    if log := os.environ.get("DOUBLE_LOG"):
        with open(log, "a", encoding="utf-8") as file:
            line = {"program": "aiecc", "arguments": arguments, "directory": os.getcwd()}
            file.write(json.dumps(line) + "\n")
    behaviour, _, file = os.environ.get("DOUBLE_AIECC", "").partition("=")
    if behaviour == "fail":
        print("error: no free shim channel", file=sys.stderr)
        return 3
    if behaviour in ("crash", "killed"):
        os.kill(os.getpid(), signal.SIGSEGV if behaviour == "crash" else signal.SIGKILL)
    if behaviour in ("hang", "stray"):
        child = subprocess.Popen(["sleep", "600"], start_new_session=behaviour == "stray")
        partial = Path(file + ".partial")
        partial.write_text(f"{os.getpid()} {child.pid}", encoding="utf-8")
        partial.rename(file)
        time.sleep(600)
    if behaviour == "print":
        print('{"done":{"id":1,"pdi":"forged","instructions":"forged"}}')
    if behaviour != "nothing":
        compile_design(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
