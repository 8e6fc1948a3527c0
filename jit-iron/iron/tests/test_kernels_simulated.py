"""Every design, in the simulator: each type, both generations, shapes from one element to a model's, against numpy.

Tolerances are those of ggml's test-backend-ops: a normalised mean square error of 1e-7, of 5e-4 for products. Results in bf16 are
compared with the exact ones rounded to bf16, where a result that lies almost between two numbers may be either.

A design is run in the forms of IRON 1.3 and 1.4 in turn. With KERNELS=all every case runs; without it, which takes minutes
less, every kernel with every type runs on both generations, but on two of its shapes in turn.
"""

import importlib
import math
import os
import struct
import sys
import unittest
import zlib

from kernel_cores import IRON, NUMPY_TYPES, bfloat16, np

sys.path[:0] = [str(IRON / "kernels"), str(IRON)]

from simulator import installation  # noqa: E402  (needs the path above)

# The simulator stands for IRON from here on.
installation.install("1.3")

from design import Unsupported  # noqa: E402
from tensor_desc import TensorDesc  # noqa: E402

DESIGN_MODULES = (
    "binary_ops", "unary_ops", "scale", "rms_norm", "soft_max", "glu_ops", "mul_mat", "elementwise", "iron_program",
    "rowwise", "tiling", "row_transfers", "element_types", "generation", "parameters",
)  # fmt: skip
ARCHITECTURES = ("aie2", "aie2p")
RELEASES = ("1.3", "1.4")
TOLERANCE, PRODUCT_TOLERANCE = 1e-7, 5e-4
# Half a unit of bf16's eight bits, squared.
NARROW_TOLERANCE = 2.0**-16 * 1.01
FLAT = [(1, 1, 1, 1), (33, 1, 1, 1), (64, 16, 1, 1), (257, 129, 1, 1), (4096, 8, 1, 1)]
BROADCAST = [
    ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((33, 3, 1, 1), (33, 1, 1, 1)),
    ((64, 16, 2, 1), (1, 16, 1, 1)),
    ((12, 6, 40, 2), (4, 3, 2, 1)),
    ((4096, 8, 1, 1), (4096, 1, 1, 1)),
]
# All shapes of every case; two of them; or one in every twelfth case, which is what there is time for in CI.
CHOICE = os.environ.get("KERNELS", "few")
if CHOICE not in ("all", "some", "few"):
    raise ValueError(f"KERNELS={CHOICE!r}; all, some and few are possible")


def params(*words):
    """64 bytes of parameters: whole numbers as integers, others as floats."""
    packed = b"".join(struct.pack("<i" if isinstance(word, int) else "<f", word) for word in words)
    return bytearray(packed.ljust(64, b"\0"))


def nmse(result, expected):
    """The measure of test-backend-ops; exact for results that are zero throughout."""
    off, size = ((result - expected) ** 2).sum(), (expected**2).sum()
    return float(off / size) if size else float(off)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))


def gelu_erf(x):
    return 0.5 * x * np.vectorize(math.erfc, otypes=[np.float64])(-x / math.sqrt(2))


def hardsigmoid(x):
    return np.clip((x + 3) / 6, 0, 1)


UNARY = {
    "abs": np.abs,
    "sgn": np.sign,
    "neg": np.negative,
    "step": lambda x: (x > 0).astype(x.dtype),
    "tanh": np.tanh,
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": sigmoid,
    "gelu": gelu,
    "gelu_quick": lambda x: x * sigmoid(1.702 * x),
    "silu": lambda x: x * sigmoid(x),
    "hardswish": lambda x: x * hardsigmoid(x),
    "hardsigmoid": hardsigmoid,
    "exp": np.exp,
    "gelu_erf": gelu_erf,
}
FLOAT_TYPES = [
    ("f32", "f32", "f32"), ("bf16", "bf16", "bf16"), ("bf16", "f32", "f32"), ("f32", "bf16", "bf16"), ("bf16", "f32", "bf16"),
]  # fmt: skip
INTEGER_UNARY = ("abs", "sgn", "neg", "step", "relu")
BINARY = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
GATES = {
    "reglu": UNARY["relu"],
    "geglu": gelu,
    "swiglu": UNARY["silu"],
    "geglu_erf": gelu_erf,
    "geglu_quick": UNARY["gelu_quick"],
}
PRODUCTS = [
    ("f32", "f32", "f32"), ("bf16", "f32", "f32"), ("bf16", "bf16", "f32"), ("i8", "i8", "i32"), ("i16", "i16", "i32"), ("i32", "i32", "i32"),
]  # fmt: skip
PRODUCT_SHAPES = [
    ((1, 1, 1, 1), (1, 1, 1, 1)),
    ((33, 7, 1, 1), (33, 3, 1, 1)),
    ((256, 64, 1, 1), (256, 16, 1, 1)),
    ((255, 67, 2, 1), (255, 18, 4, 1)),
    ((768, 512, 1, 1), (768, 4, 1, 1)),
]


class SimulatedTest(unittest.TestCase):
    def setUp(self):
        self.random = np.random.default_rng(23)
        self.number = 0

    def shapes(self, shapes):
        """Those to run, which differ from call to call."""
        self.number += 1
        if CHOICE == "all":
            return shapes
        if CHOICE == "few":
            return [shapes[self.number // 12 % len(shapes)]] if self.number % 12 == 1 else []
        return [shapes[self.number % len(shapes)], shapes[(self.number + 2) % len(shapes)]]

    def values(self, tensor, low=0.25, high=4.0):
        """Numbers of both signs, away from zero; integers of the whole range."""
        of_type = NUMPY_TYPES[tensor.dtype]
        if tensor.dtype.startswith("i"):
            limits = np.iinfo(of_type)
            return self.random.integers(limits.min, limits.max, tensor.size, dtype=of_type, endpoint=True)
        signs = self.random.choice([-1, 1], tensor.size)
        return (self.random.uniform(low, high, tensor.size) * signs).astype(of_type)

    def build(self, module, function, arch, sources, output, op_params):
        """The design's module, in one of IRON's two forms, which one a case gets being told by its name."""
        release = RELEASES[zlib.crc32(f"{function}{arch}{output}".encode()) % 2]
        for name in DESIGN_MODULES:
            sys.modules.pop(name, None)
        installation.install(release)
        return getattr(importlib.import_module(module), function)(arch, sources, output, op_params or params(0))

    def run_design(self, module, function, arch, sources, output, arguments, op_params):
        """The result of a design."""
        built = self.build(module, function, arch, sources, output, op_params)
        result = np.full(output.size, 77, dtype=NUMPY_TYPES[output.dtype])
        given = [array.copy() for array in arguments]
        built.execute([*given, result])
        for before, after in zip(arguments, given):
            np.testing.assert_array_equal(before.view(np.uint8), after.view(np.uint8), "a source was written")
        return result

    def check(self, result, exact, dtype, tolerance=TOLERANCE):
        if dtype.startswith("i"):
            np.testing.assert_array_equal(result, exact.astype(np.int64).astype(NUMPY_TYPES[dtype]))
            return
        wide = result.astype(np.float64)
        self.assertTrue(np.isfinite(wide).all())
        if dtype == "bf16":
            rounded = exact.astype(np.float32).astype(bfloat16)
            different = np.count_nonzero(rounded != result)
            self.assertLessEqual(different, len(result) // 100)
            tolerance = NARROW_TOLERANCE
        self.assertLess(nmse(wide, exact), tolerance)

    def test_two_sources(self):
        for arch in ARCHITECTURES:
            for name, exact in BINARY.items():
                for types in [*FLOAT_TYPES, ("i8",) * 3, ("i16",) * 3, ("i32",) * 3]:
                    if name == "div" and types[0].startswith("i"):
                        continue  # ggml divides no integers.
                    for shapes in self.shapes([(shape, shape) for shape in FLAT]) + self.shapes(BROADCAST):
                        with self.subTest(arch=arch, op=name, types=types, shapes=shapes):
                            self.two_sources(arch, name, exact, types, shapes)

    def test_odd_numbers_of_elements_of_different_widths(self):
        shapes = [(1, 1, 1, 1), (31, 1, 1, 1), (33, 1, 1, 1), (4097, 1, 1, 1)]
        for number, types in enumerate(FLOAT_TYPES[2:]):
            for arch in ARCHITECTURES:
                for shape in shapes if CHOICE == "all" else [shapes[number], shapes[3]]:
                    with self.subTest(arch=arch, types=types, shape=shape):
                        self.two_sources(arch, "add", np.add, types, [shape, shape])
                        self.two_sources(arch, "add", np.add, types, [shape, (1, 1, 1, 1)])

    def test_a_tensor_that_ends_with_its_last_word_is_not_left(self):
        # The other way round than the above: what is behind an odd number of bf16 belongs to their last word, what is behind the
        # f32 does not. The simulator refuses transfers beyond an argument, whose length the design states.
        for arch in ARCHITECTURES:
            a, b = TensorDesc("bf16", (33, 1, 1, 1)), TensorDesc("f32", (33, 1, 1, 1))
            built = self.build("binary_ops", "ggml_op_add", arch, [a, b], b, None)
            self.assertEqual([t.__args__[0] for t in built.program.argument_types], [(34,), (33,), (33,)])

    def two_sources(self, arch, name, exact, types, shapes):
        a, b = (TensorDesc(dtype, shape) for dtype, shape in zip(types, shapes))
        output = TensorDesc(types[2], shapes[0])
        x, y = self.values(a), self.values(b)
        result = self.run_design("binary_ops", f"ggml_op_{name}", arch, [a, b], output, [x, y], None)
        wide = np.int64 if types[0].startswith("i") else np.float64
        repeats = [n // m for n, m in zip(shapes[0][::-1], shapes[1][::-1])]
        whole = np.tile(y.astype(wide).reshape(shapes[1][::-1]), repeats).ravel()
        self.check(result, exact(x.astype(wide), whole), types[2])

    def test_one_source(self):
        for arch in ARCHITECTURES:
            for name, exact in UNARY.items():
                mixes = [("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")]
                mixes += [(dtype, dtype) for dtype in ("i8", "i16", "i32") if name in INTEGER_UNARY]
                for source_type, type_ in mixes:
                    for shape in self.shapes(FLAT):
                        with self.subTest(arch=arch, op=name, types=(source_type, type_), shape=shape):
                            source, output = TensorDesc(source_type, shape), TensorDesc(type_, shape)
                            x = self.values(source)
                            result = self.run_design("unary_ops", f"ggml_unary_op_{name}", arch, [source], output, [x], None)
                            wide = x.astype(np.int64 if type_.startswith("i") else np.float64)
                            self.check(result, exact(wide), type_)

    def test_scale(self):
        for arch in ARCHITECTURES:
            for types in (("f32", "f32"), ("bf16", "bf16"), ("bf16", "f32"), ("f32", "bf16")):
                for summand in (0.0, -0.75):
                    for shape in self.shapes(FLAT):
                        with self.subTest(arch=arch, types=types, summand=summand, shape=shape):
                            source, output = (TensorDesc(dtype, shape) for dtype in types)
                            x, given = self.values(source), params(0.3, summand)
                            result = self.run_design("scale", "ggml_op_scale", arch, [source], output, [x], given)
                            self.check(result, x.astype(np.float64) * float(np.float32(0.3)) + summand, types[1])

    def test_rms_norm(self):
        for arch in ARCHITECTURES:
            shapes = [(1, 1, 1, 1), (33, 7, 1, 1), (64, 4, 1, 1), (100, 30, 3, 2), (2048, 8, 1, 1), (8192, 3, 1, 1)]
            for shape in shapes if CHOICE == "all" else shapes[1:4]:
                with self.subTest(arch=arch, shape=shape):
                    tensor, given = TensorDesc("f32", shape), params(1e-5)
                    x = self.values(tensor)
                    result = self.run_design("rms_norm", "ggml_op_rms_norm", arch, [tensor], tensor, [x], given)
                    rows = x.astype(np.float64).reshape(-1, shape[0])
                    exact = rows / np.sqrt((rows**2).mean(axis=1, keepdims=True) + float(np.float32(1e-5)))
                    self.check(result, exact.ravel(), "f32")

    def test_soft_max(self):
        cases = [
            ((1, 1, 1, 1), (1, 1, 1, 1), 0.0),
            ((33, 7, 3, 1), (33, 9, 1, 1), 0.0),
            ((64, 4, 2, 1), None, 0.0),
            ((100, 6, 6, 2), (100, 6, 1, 1), 8.0),
            ((256, 8, 4, 1), (256, 8, 1, 1), 0.0),
            ((1100, 5, 2, 1), (1100, 5, 1, 1), 0.0),
        ]
        for arch in ARCHITECTURES:
            for shape, mask_shape, bias in cases if CHOICE == "all" else cases[1:4]:
                for mask_type in ("f32", "bf16") if mask_shape and mask_shape[0] % 2 == 0 else ("f32",):
                    with self.subTest(arch=arch, shape=shape, mask=mask_shape, type=mask_type, bias=bias):
                        self.soft_max(arch, shape, mask_shape, mask_type, bias)

    def soft_max(self, arch, shape, mask_shape, mask_type, bias):
        tensor = TensorDesc("f32", shape)
        x, sources = self.values(tensor), [tensor]
        logits = x.astype(np.float64).reshape(shape[::-1]) * 0.125
        arguments = [x]
        if mask_shape:
            mask = TensorDesc(mask_type, mask_shape)
            sources.append(mask)
            m = self.values(mask)
            # A causal mask forbids, but never a whole row.
            m[[i for i in range(mask.size) if i % mask_shape[0] and i % 3 == 0]] = -np.inf
            arguments.append(m)
            heads, power = shape[2], 2 ** math.floor(math.log2(shape[2]))
            exponents = [h + 1 if h < power else (2 * (h - power) + 1) / 2 for h in range(heads)]
            slopes = np.array([2.0 ** (-bias / power * e) if bias else 1.0 for e in exponents])
            rows = m.astype(np.float64).reshape(mask_shape[::-1])[:, :, : shape[1]]
            repeats = [shape[3] // mask_shape[3], shape[2] // mask_shape[2], 1, 1]
            logits = logits + slopes[None, :, None, None] * np.tile(rows, repeats)
        result = self.run_design("soft_max", "ggml_op_soft_max", arch, sources, tensor, arguments, params(0.125, bias))
        e = np.exp(logits - logits.max(axis=-1, keepdims=True))
        self.check(result, (e / e.sum(axis=-1, keepdims=True)).ravel(), "f32")

    def test_glu(self):
        shapes = [(1, 1, 1, 1), (34, 5, 1, 1), (64, 16, 1, 1), (258, 129, 1, 1), (5632, 8, 1, 1)]
        for arch in ARCHITECTURES:
            for name, gate in GATES.items():
                for dtype in ("f32", "bf16"):
                    for shape in self.shapes(shapes):
                        for form in ("two", "halves", "swapped"):
                            if form != "two" and dtype == "bf16" and shape[0] % 2:
                                continue  # Refused; see test_what_is_refused.
                            with self.subTest(arch=arch, op=name, dtype=dtype, shape=shape, form=form):
                                self.glu(arch, name, lambda x, g, gate=gate: gate(x) * g, dtype, shape, form, params(2))

    def test_variants_of_swiglu(self):
        silu = UNARY["silu"]
        definitions = {
            "swiglu_oai": lambda x, g: np.minimum(x, 2) * sigmoid(1.5 * np.minimum(x, 2)) * (np.clip(g, -2, 2) + 1),
            "swiglu_clamp": lambda x, g: silu(np.minimum(x, 2)) * np.clip(g, -2, 2),
        }
        for arch in ARCHITECTURES:
            for name, exact in definitions.items():
                for dtype in ("f32", "bf16"):
                    with self.subTest(arch=arch, op=name, dtype=dtype):
                        self.glu(arch, name, exact, dtype, (258, 7, 1, 1), "two", params(0, 0, 1.5, 2.0))

    def glu(self, arch, name, exact, dtype, shape, form, op_params):
        output = TensorDesc(dtype, shape)
        if form == "two":
            sources = [output, output]
            arguments = [self.values(output) for _ in sources]
            x, g = arguments
        else:
            wide = TensorDesc(dtype, (2 * shape[0], *shape[1:]))
            sources, arguments = [wide], [self.values(wide)]
            halves = arguments[0].reshape(-1, 2, shape[0])
            x, g = halves[:, 0].ravel(), halves[:, 1].ravel()
            if form == "swapped":
                x, g, op_params = g, x, params(2, 1)
        result = self.run_design("glu_ops", f"ggml_glu_op_{name}", arch, sources, output, arguments, op_params)
        self.check(result, exact(x.astype(np.float64), g.astype(np.float64)), dtype)

    def test_products(self):
        for arch in ARCHITECTURES:
            for types in PRODUCTS:
                for shapes in self.shapes(PRODUCT_SHAPES):
                    with self.subTest(arch=arch, types=types, shapes=shapes):
                        self.product(arch, types, shapes)

    def product(self, arch, types, shapes):
        a, b = (TensorDesc(dtype, shape) for dtype, shape in zip(types, shapes))
        output = TensorDesc(types[2], (a.shape[1], *b.shape[1:]))
        x, y = self.values(a), self.values(b)
        result = self.run_design("mul_mat", "ggml_op_mul_mat", arch, [a, b], output, [x, y], None)
        wide = np.int64 if types[2] == "i32" else np.float64
        left, right = x.astype(wide).reshape(a.shape[::-1]), y.astype(wide).reshape(b.shape[::-1])
        left = np.repeat(np.repeat(left, b.shape[3] // a.shape[3], 0), b.shape[2] // a.shape[2], 1)
        exact = np.einsum("pqmk,pqnk->pqnm", left, right).ravel()
        self.check(result, exact, types[2], PRODUCT_TOLERANCE)

    def test_what_is_refused(self):
        f32, f16, odd = TensorDesc("f32", (8, 1, 1, 1)), TensorDesc("f16", (8, 1, 1, 1)), TensorDesc("bf16", (3, 2, 1, 1))
        gaps = TensorDesc("f32", (8, 2, 1, 1), (4, 64, 128, 128))
        cases = [
            ("binary_ops", "ggml_op_add", "aie4", [f32, f32], f32, "no design for 'aie4'"),
            ("binary_ops", "ggml_op_add", "aie2", [f16, f16], f16, "source 0 is f16.*f32 or bf16"),
            ("binary_ops", "ggml_op_add", "aie2", [f32, odd], f32, "does not repeat"),
            ("unary_ops", "ggml_unary_op_relu", "aie2", [gaps], TensorDesc("f32", (8, 2, 1, 1)), "strides"),
            ("glu_ops", "ggml_glu_op_swiglu", "aie2", [TensorDesc("bf16", (6, 2, 1, 1))], odd, "not whole words"),
            ("mul_mat", "ggml_op_mul_mat", "aie2", [f32, f32], f32, "the result would have"),
        ]
        for module, function, arch, sources, output, text in cases:
            with self.subTest(function=function, text=text):
                sys.modules.pop(module, None)
                with self.assertRaisesRegex(Unsupported, text):
                    getattr(importlib.import_module(module), function)(arch, sources, output, params(0))


if __name__ == "__main__":
    unittest.main()
