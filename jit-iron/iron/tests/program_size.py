"""Estimates how large a core function becomes in the program memory of a core.

The rule: the function is compiled for this machine without inlining, and its calls are counted as though each were compiled into
its place, as AMD's compilers do with small functions. A call of aie_api counts as many instructions as the array needs for it (the
table below); of the machine's own code, comparisons, branches, sums and products of scalars count one each. An instruction takes
`BYTES`. Loops count once: nothing is assumed to be unrolled.

BYTES is what these functions of mlir-aie take in public programs, compiled by Peano for aie2 with mlir-aie 1.3.2 (github.com/tibrezus/
xdna-npu-toolkit, commit ef0ef97), by `ggml-hsa disassemble` and by the count:

    add.cc  eltwise_add_bf16_vector                    160 bytes   13 instructions   12.3
    mv.cc   matvec_vectorized_i16_i32, 32 x 32         400 bytes   33 instructions   12.1
    mm.cc   matmul_i16_i32, 32 x 32 x 32               624 bytes   53 instructions   11.8

All three are loops that the compiler pipelines, so that parts of them are there twice or more. Larger bodies are not, and should
be below the estimate; loops that are unrolled, as zero.cc's, which takes 224 bytes instead of 96, are above it. The estimate
says whether a function is near the limit, not what its size is. What the designs keep out of line (OUTLINED) counts once,
whoever calls it. A core's program has a part besides its functions, with the loops and locks of the design.
"""

from __future__ import annotations

import re
import subprocess
from functools import cache

BYTES = 12
PROGRAM_MEMORY = 16 * 1024
# For what a core has beside its functions: start, loops, locks. The three public programs below have 1.0 to 1.5 KB.
OTHER_CODE = 2 * 1024
# The function that cores/two_names.h keeps out of line.
OUTLINED = re.compile(r"^compute\(")
# Loading a constant of 32 bits and spreading it.
BROADCAST = 2
# A product of f32: six bf16 are split off (a conversion and a subtraction each, but for the last of three), nine products are summed.
F32_PRODUCT = 6 + 4 + 9
# The vector element types' sizes, as they are in demangled names.
SIZES = {"signed char": 1, "unsigned char": 1, "short": 2, "unsigned short": 2, "int": 4, "unsigned int": 4, "bfloat16": 2, "float": 4}
COUNTED = re.compile(r"^(?:cmp|test|j(?!mp)|add|sub|imul|idiv|div|and|or|xor|sh|sa|b\.|cb|tb|mul|sdiv|udiv|madd|ls|as)")


def instructions(call: str) -> int | None:
    """How many instructions the array needs for a call of aie_api by its demangled name; None for other functions."""
    qualified = _qualified(call)
    # Types of aie_api have its name too, where they are what a design's own function returns.
    if not qualified.startswith("aie::"):
        return None
    vectors = re.findall(r"aie::vector<([a-z0-9 ]+), (\d+)u>", call)
    sizes = [SIZES.get(of_type, 4) * int(count) for of_type, count in vectors]
    registers = max(1, -(-max(sizes, default=64) // 64))
    lanes = max([int(count) for count in re.findall(r"(?:vector<[a-z0-9 ]+|accum<[a-z0-9]+), (\d+)u>", call)], default=16)
    name = qualified.split("::")[-1]
    if name in ("mul", "mac", "msc", "negmul", "mul_square"):
        types = {of_type for of_type, _ in vectors}
        if "float" in types:
            return F32_PRODUCT * -(-lanes // 16)
        return 8 * -(-lanes // 16) if types & {"int", "unsigned int"} else 2 * -(-lanes // 32)
    if name in ("reduce_add", "reduce_max", "reduce_min"):
        return 2 * (lanes.bit_length() - 1) + 1
    if name in ("inv", "invsqrt", "sqrt", "div"):
        return 5 * F32_PRODUCT
    if name == "broadcast":
        return BROADCAST
    if name in ("lt", "le", "gt", "ge", "eq", "neq", "max", "min", "select"):
        return 2 * registers
    if name in ("get", "set", "set_rounding", "set_saturation", "operator&", "operator|", "operator~"):
        return 1
    if name in ("cast_to", "vector", "accum", "mask", "data", "zeros", "check_address", "swap"):
        return 0
    if name in ("mul_matrix", "mmul"):
        return 1
    return registers


def _qualified(call: str) -> str:
    """The function's name with its namespaces, without template arguments, result and arguments."""
    plain = call.replace("(anonymous namespace)", "anonymous").replace("operator()", "operator_call")
    plain = re.sub(r"operator(?:<=>|<<=?|>>=?|<=|>=|->|<|>)", "operator_sign", plain)
    before = None
    while before != plain:
        before = plain
        plain = re.sub(r"\{lambda\([^(){}]*\)#\d+\}", "lambda", re.sub(r"<[^<>]*>", "", plain))
    return plain.split("(")[0].strip().split(" ")[-1]


def estimate(assembly: str, *functions: str) -> int:
    """Bytes of these functions together, by the assembly of this machine, made with -fno-inline."""
    bodies = _bodies(assembly)

    @cache
    def count(name: str) -> tuple[int, frozenset[str]]:
        """Instructions in place of a call, and the functions out of line that are called."""
        own, calls = bodies.get(name, (0, ()))
        total, shared = own, frozenset()
        for callee in calls:
            known = instructions(callee)
            if known is None and OUTLINED.match(callee):
                total, shared = total + 1, shared | {callee}
            elif known is not None:
                total += known
            else:
                more, further = count(callee)
                total, shared = total + more, shared | further
        return total, shared

    missing = [function for function in functions if function not in bodies]
    if missing:
        raise ValueError(f"{', '.join(missing)} is not in the assembly; there are: {', '.join(list(bodies)[:5])} ...")
    total, waiting, counted = 0, list(functions), set()
    while waiting:
        name = waiting.pop()
        if name not in counted:
            counted.add(name)
            own, shared = count(name)
            total += own
            waiting += shared
    return total * BYTES


def _bodies(assembly: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    demangled = subprocess.run(["c++filt"], input=assembly, capture_output=True, text=True, check=True).stdout
    bodies: dict[str, tuple[int, tuple[str, ...]]] = {}
    name, own, calls = None, 0, []
    for line in demangled.splitlines():
        if not line.startswith(("\t", " ", ".", "#")) and line.endswith(":"):
            name, own, calls = line[:-1].strip('"'), 0, []
            bodies[name] = (0, ())
        elif name and line.startswith("\t") and not line.startswith("\t."):
            operation, _, operands = line.strip().partition("\t")
            if operation in ("call", "callq", "bl", "jmp") and not operands.startswith((".", "*")):
                calls.append(operands.removesuffix("@PLT").strip('"'))
            elif COUNTED.match(operation):
                own += 1
            bodies[name] = (own, tuple(calls))
    return bodies
