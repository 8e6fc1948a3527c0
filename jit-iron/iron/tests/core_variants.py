"""Every core function of the designs with macros as the designs give them: what to check them for, without a design's Python."""

from __future__ import annotations

UNARY = (
    "abs", "sgn", "neg", "step", "tanh", "elu", "relu", "sigmoid", "gelu", "gelu_quick", "silu", "hardswish", "hardsigmoid", "exp",
    "gelu_erf", "expm1", "floor", "ceil", "round", "trunc", "sqr", "sqrt",
)  # fmt: skip
GATES = ("relu", "gelu", "gelu_erf", "gelu_quick", "silu")
EXTENTS = "6,4,2,1,3,2,1,1"
ONE = "0x3f800000u"
ROW = {"ROW_LENGTH": "128", "ROW_OBJECT": "128", "PART": "128", "TENSOR": "1024", "WINDOW": "0"}
MASK = {"MASK_TYPE": "bfloat16", "MASK_TENSOR": "1024", "MASK_WINDOW": "0", "EXTENTS": "4,2,1,4,2,1"}


# Files whose function has another name for the last part of a tensor, in the same object file.
TWO_NAMES = (
    "unary.cc", "unary_integer.cc", "binary.cc", "binary_repeated.cc", "binary_integer.cc", "binary_integer_repeated.cc", "scale.cc",
    "glu.cc",
)  # fmt: skip
TAIL = "core_function_of_the_tail"
MUL_MAT_PARTS = ("KEEP_ROW", "MULTIPLY_ROW", "GIVE_WORDS")


def programs(found: list[tuple[str, dict[str, str]]]) -> list[list[tuple[str, dict[str, str]]]]:
    """The same, in groups that a core has together."""
    groups: dict[tuple, list] = {}
    for source, macros in found:
        key = (source, *sorted(item for item in macros.items() if item[0] not in MUL_MAT_PARTS))
        groups.setdefault(key, []).append((source, macros))
    return list(groups.values())


def variants() -> list[tuple[str, dict[str, str]]]:
    """(file of `cores`, macros); of types that only change loads and stores, the two extremes."""
    found: list[tuple[str, dict[str, str]]] = []
    for name in UNARY:
        for of_type in ("float", "bfloat16"):
            found.append(("unary.cc", {"FUNCTION": name, "INPUT_TYPE": of_type, "OUTPUT_TYPE": of_type}))
    found.append(("unary.cc", {"FUNCTION": "leaky_relu", "INPUT_TYPE": "float", "OUTPUT_TYPE": "float", "PARAMETER_0": ONE}))
    for name in ("add", "sub", "mul", "div"):
        types = {"INPUT_0_TYPE": "float", "INPUT_1_TYPE": "bfloat16", "OUTPUT_TYPE": "bfloat16"}
        found.append(("binary.cc", {"FUNCTION": name, **types}))
        found.append(("binary_repeated.cc", {"FUNCTION": name, **types, "EXTENTS": EXTENTS}))
    for of_type in ("int8", "int16", "int32"):
        for name in ("add", "sub", "mul"):
            found.append(("binary_integer.cc", {"FUNCTION": name, "ELEMENT_TYPE": of_type}))
            found.append(("binary_integer_repeated.cc", {"FUNCTION": name, "ELEMENT_TYPE": of_type, "EXTENTS": EXTENTS}))
        for name in ("abs", "neg", "relu", "sgn", "step"):
            found.append(("unary_integer.cc", {"FUNCTION": name, "ELEMENT_TYPE": of_type}))
    for summand in ({}, {"SUMMAND": ONE}):
        found.append(("scale.cc", {"INPUT_TYPE": "float", "OUTPUT_TYPE": "bfloat16", "FACTOR": ONE, **summand}))
    for gate in GATES:
        found.append(("glu.cc", {"GATE": gate, "INPUT_TYPE": "float"}))
    found.append(("glu.cc", {"GATE": "silu", "INPUT_TYPE": "bfloat16", "LIMIT": ONE, "SLOPE": ONE}))
    found.append(("rms_norm.cc", {**ROW, "EPSILON": ONE}))
    found.append(("soft_max.cc", {**ROW, "FACTOR": ONE}))
    found.append(("soft_max.cc", {**ROW, **MASK, "FACTOR": ONE}))
    for a, b, result, more in (
        ("int8", "int8", "int32", {"TILED": "1"}),
        ("int16", "int16", "int32", {"TILED": "1"}),
        ("int32", "int32", "int32", {}),
        ("bfloat16", "bfloat16", "float", {"FLOATS": "1", "NARROW": "1", "TILED": "1"}),
        ("bfloat16", "float", "float", {"FLOATS": "1"}),
        ("float", "float", "float", {"FLOATS": "1"}),
    ):
        for part in MUL_MAT_PARTS:
            macros = {"A_TYPE": a, "B_TYPE": b, "SUM_TYPE": result, "CHUNK": "256", **more, part: "1"}
            found.append(("mul_mat.cc", macros))
    return [(source, macros | {"TAIL_FUNCTION": TAIL} if source in TWO_NAMES else macros) for source, macros in found]
