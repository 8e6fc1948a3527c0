"""What the cores' approximations are off by, over every bf16 number, against double precision.

A bound is the largest error relative to the exact result. Errors up to LEAST are not counted: exponentials below exp(-86) are 0 on
the cores, and activations multiply that by x.
"""

import math
import unittest

from kernel_cores import Buffer, CoreFunctions, architectures, bfloat16, np

LEAST = 1e-35
LARGEST_F32 = float(np.finfo(np.float32).max)


def erfc(x):
    return np.vectorize(math.erfc, otypes=[np.float64])(x)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    # The two limits are ggml's.
    exact = x * sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    return np.where(x <= -10, 0.0, np.where(x >= 10, x, exact))


def hardsigmoid(x):
    # 0 for NaN, as in ggml.
    return np.nan_to_num(np.clip((x + 3) / 6, 0, 1), nan=0.0)


# Function -> (definition, bound for results in f32). Results in bf16 are that rounded to the nearest, which adds 2^-8 at most.
FUNCTIONS = {
    "tanh": (np.tanh, 1e-6),
    "elu": (lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))), 1e-6),
    "sigmoid": (sigmoid, 1e-6),
    "gelu": (gelu, 1e-5),
    "gelu_quick": (lambda x: x * sigmoid(1.702 * x), 1e-5),
    "gelu_erf": (lambda x: 0.5 * x * erfc(-x / math.sqrt(2)), 1e-5),
    "silu": (lambda x: x * sigmoid(x), 1e-6),
    "hardswish": (lambda x: x * hardsigmoid(x), 1e-6),
    "hardsigmoid": (hardsigmoid, 1e-6),
    "exp": (np.exp, 1e-6),
    "expm1": (np.expm1, 1e-6),
    # What is no normal number of f32 counts as zero, as in the array's products.
    "sqrt": (lambda x: np.where(np.abs(x) < 2.0**-126, 0, np.where(x < 0, np.nan, np.sqrt(np.abs(x)))), 5e-7),
}
# Without a logarithm or a root in them these are exact.
EXACT = {
    "abs": np.abs,
    "neg": np.negative,
    "sgn": lambda x: np.nan_to_num(np.sign(x), nan=0.0),
    "step": lambda x: np.where(x > 0, 1.0, 0.0),
    "relu": lambda x: np.where(x > 0, x, 0.0),
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "round": lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x),
}


def relative(result, expected):
    """Errors relative to what is expected, where they are more than LEAST."""
    off = np.abs(result - expected)
    return np.where(off <= LEAST, 0.0, off / np.maximum(np.abs(expected), LEAST))


class ApproximationsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cores = CoreFunctions()
        cls.addClassCleanup(cls.cores.close)
        numbers = np.arange(65536, dtype=np.uint16).view(bfloat16)
        cls.every = Buffer("bf16", 65536, numbers)
        with np.errstate(all="ignore"):
            cls.exact = numbers.astype(np.float64)

    def run_function(self, arch, name, output):
        out = Buffer(output, 65536)
        types = {"INPUT_TYPE": "bfloat16", "OUTPUT_TYPE": {"f32": "float", "bf16": "bfloat16"}[output]}
        function = self.cores.function(arch, "unary.cc", FUNCTION=name, **types)
        function(self.every.pointer, out.pointer, 65536)
        self.assertTrue(out.intact)
        with np.errstate(all="ignore"):
            return out.values.astype(np.float64)

    def errors(self, name, result, expected):
        """Relative errors of the finite results; that the others are the same is asserted."""
        numbers = np.isfinite(expected) & (np.abs(expected) <= LARGEST_F32)
        np.testing.assert_array_equal(np.isnan(result), np.isnan(expected), f"{name}: not a number elsewhere")
        infinite = ~numbers & ~np.isnan(expected)
        np.testing.assert_array_equal(result[infinite], np.sign(expected[infinite]) * np.inf, f"{name}: infinite elsewhere")
        return relative(result[numbers], expected[numbers])

    def test_every_number(self):
        with np.errstate(all="ignore"):
            for arch in architectures(self):
                for name, (definition, bound) in FUNCTIONS.items():
                    with self.subTest(arch=arch, function=name):
                        expected = definition(self.exact)
                        # x times a share of it has the limit 0, where double precision says NaN.
                        if name in ("silu", "gelu_quick", "gelu_erf", "hardswish"):
                            expected = np.where(np.isneginf(self.exact), 0.0, expected)
                        error = self.errors(name, self.run_function(arch, name, "f32"), expected)
                        self.assertLess(error.max(), bound)
                        narrow = self.run_function(arch, name, "bf16")
                        rounded = np.abs(expected) < float(np.finfo(np.float32).max) * (1 - 2.0**-9)
                        off = relative(narrow[rounded], expected[rounded])
                        self.assertLess(off.max(), 2.0**-8 * (1 + 2 * bound) + bound)

    def test_exact_functions(self):
        with np.errstate(all="ignore"):
            for arch in architectures(self):
                for name, definition in EXACT.items():
                    with self.subTest(arch=arch, function=name):
                        expected = definition(self.exact)
                        np.testing.assert_array_equal(self.run_function(arch, name, "f32"), expected)
                        np.testing.assert_array_equal(self.run_function(arch, name, "bf16"), expected)


if __name__ == "__main__":
    unittest.main()
