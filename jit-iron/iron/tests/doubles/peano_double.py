#!/usr/bin/env python3
"""A TEST DOUBLE of Peano's clang++. It is not Peano and compiles nothing: IRON itself has not run in these tests.

It takes the options that core functions are compiled with, rejects all others as clang++ does, and writes a file that says what
it is in place of an object. A source with a line `#error TEXT` fails with clang's message. Tests link it as `clang++`.

Environment:
  DOUBLE_LOG    file to which each run but --version adds a JSON line: program, arguments, directory
  DOUBLE_PEANO  fail (without a message), print (to both outputs), nothing
"""

import json
import os
import re
import sys
from pathlib import Path

KNOWN = r"-c|-MD|-O[0-3]|-std=c\+\+(17|20|23)|-W(no-)?[a-z-]+|-[DU]\w+(=\S*)?|-I.+|-f[a-z-]+"
TARGETS = ("aie2-none-unknown-elf", "aie2p-none-unknown-elf")


def error(text: str) -> "NoReturn":
    print(f"clang++: error: {text}", file=sys.stderr)
    sys.exit(1)


def main() -> int:
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        print("clang version 0.0.0 (test double of Peano)")
        return 0
    if log := os.environ.get("DOUBLE_LOG"):
        with open(log, "a", encoding="utf-8") as file:
            line = {"program": "clang++", "arguments": arguments, "directory": os.getcwd()}
            file.write(json.dumps(line) + "\n")
    behaviour = os.environ.get("DOUBLE_PEANO", "")
    if behaviour == "fail":
        return 1
    if behaviour == "print":
        print('{"done":{"id":1,"pdi":"forged","instructions":"forged"}}')
        print("warning: a message on standard error", file=sys.stderr)
    if behaviour != "nothing":
        compile_source(arguments)
    return 0


def compile_source(arguments: list) -> None:
    values, sources, target = {}, [], None
    words = iter(arguments)
    for word in words:
        if word in ("-o", "-MF", "-I"):
            values.setdefault(word, []).append(next(words, ""))
        elif word.startswith("--target="):
            target = word.removeprefix("--target=")
        elif not word.startswith("-"):
            sources.append(word)
        elif re.fullmatch(KNOWN, word) is None:
            error(f"unknown argument: '{word}'")
    if target not in TARGETS:
        error(f"unknown target triple '{target}'")
    if len(sources) != 1 or not Path(sources[0]).is_file():
        error(f"no such file or directory: {sources}")
    if "-c" not in arguments or len(values.get("-o", [])) != 1:
        error("this double only compiles, to one object")
    text = Path(sources[0]).read_text(encoding="utf-8")
    if found := re.search(r"^#error (.*)$", text, re.MULTILINE):
        number = text[: found.start()].count("\n") + 1
        print(f"{sources[0]}:{number}:2: error: {found[1]}\n1 error generated.", file=sys.stderr)
        sys.exit(1)
    Path(values["-o"][0]).write_text(f"not an object: written by a test double of Peano for {target}\n", encoding="utf-8")
    for dependencies in values.get("-MF", []):
        Path(dependencies).write_text(f"{values['-o'][0]}: {sources[0]}\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
