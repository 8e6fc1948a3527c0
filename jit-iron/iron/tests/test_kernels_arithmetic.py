"""Core functions of two sources, and of integers, against numpy."""

import unittest

from kernel_cores import CPP_TYPES, NUMPY_TYPES, Buffer, CoreFunctions, architectures, np

COUNTS = (1, 2, 15, 16, 17, 64, 333)
OPERATIONS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}
MIXES = [("f32", "f32", "f32"), ("bf16", "bf16", "bf16"), ("bf16", "f32", "f32"), ("bf16", "f32", "bf16")]
INTEGERS = ("i8", "i16", "i32")
TOLERANCE = 1e-7
"""Normalised mean square error that ggml allows."""


def nmse(result, expected):
    """The measure of test-backend-ops."""
    return float(((result - expected) ** 2).sum() / (expected**2).sum())


def wrapped(dtype, exact):
    """Integers of a type, of the exact result."""
    return exact.astype(np.int64).astype(NUMPY_TYPES[dtype])


class ArithmeticTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cores = CoreFunctions()
        cls.addClassCleanup(cls.cores.close)
        cls.random = np.random.default_rng(7)

    def floats(self, dtype, count):
        values = self.random.uniform(0.25, 4, count) * self.random.choice([-1, 1], count)
        return Buffer(dtype, -(-count // 64) * 64, values.astype(NUMPY_TYPES[dtype]))

    def integers(self, dtype, count):
        limits = np.iinfo(NUMPY_TYPES[dtype])
        values = self.random.integers(limits.min, limits.max, count, endpoint=True)
        values[: min(count, 2)] = limits.min
        return Buffer(dtype, -(-count // 64) * 64, values.astype(NUMPY_TYPES[dtype]))

    def check(self, result, exact):
        self.assertTrue(result.intact)
        expected = exact.astype(result.values.dtype)
        if result.values.dtype == np.float32:
            self.assertLess(nmse(result.values.astype(np.float64), exact), TOLERANCE)
        else:
            # A sum in f32 that lies almost between two numbers of bf16 may go to either.
            same = result.values.view(np.uint16) == expected.view(np.uint16)
            self.assertLessEqual(np.count_nonzero(~same), len(expected) // 100)
            # Half a unit of eight bits, squared.
            self.assertLess(nmse(result.values.astype(np.float64), exact), 2.0**-16 * 1.01)

    def test_floats(self):
        for arch in architectures(self):
            for types in MIXES:
                macros = dict(zip(("INPUT_0_TYPE", "INPUT_1_TYPE", "OUTPUT_TYPE"), (CPP_TYPES[t] for t in types)))
                for name, exact in OPERATIONS.items():
                    function = self.cores.function(arch, "binary.cc", FUNCTION=name, **macros)
                    for count in COUNTS:
                        with self.subTest(arch=arch, types=types, function=name, count=count):
                            a, b = self.floats(types[0], count), self.floats(types[1], count)
                            out = Buffer(types[2], count)
                            function(a.pointer, b.pointer, out.pointer, count)
                            x, y = (v.values[:count].astype(np.float64) for v in (a, b))
                            self.check(out, exact(x, y))

    def test_products_at_the_ends_of_the_range(self):
        ends = [0.0, -0.0, 1.0, -1.2345678, 1e-30, -1.1e30, 1.9e19, -1.7e19, 2e38, 3.4e38, 3e-38, 1e-40, np.inf, -np.inf, np.nan]
        x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(ends, ends))
        a, b, out = Buffer("f32", 256, x), Buffer("f32", 256, y), Buffer("f32", len(x))
        macros = dict.fromkeys(("INPUT_0_TYPE", "INPUT_1_TYPE", "OUTPUT_TYPE"), "float")
        with np.errstate(all="ignore"):
            expected = x.astype(np.float64) * y
        for arch in architectures(self):
            self.cores.function(arch, "binary.cc", FUNCTION="mul", **macros)(a.pointer, b.pointer, out.pointer, len(x))
            for i, exact in enumerate(expected):
                with self.subTest(arch=arch, a=x[i], b=y[i]):
                    self.check_product(float(out.values[i]), exact, float(max(abs(x[i]), abs(y[i]))))

    def check_product(self, got, exact, larger):
        if not np.isfinite(exact) or exact == 0:
            np.testing.assert_equal(got, exact)
        elif abs(exact) >= 2.0**128:
            self.assertEqual(got, np.copysign(np.inf, exact))
        else:
            # Parts of a factor below the least normal number are lost.
            self.assertLessEqual(abs(got - exact), 1e-6 * abs(exact) + 2.0**-126 * max(larger, 1))

    def test_products_with_infinity_elsewhere(self):
        ends = np.array([np.inf, -np.inf, np.nan, 2.0, -3e38, 0.0], np.float32)
        bits = f"0x{int(np.float32(-0.3).view(np.uint32)):x}u"
        # As in ggml, what is neither above nor below zero gives zero.
        leaky = np.where(ends > 0, ends, np.where(ends < 0, ends * np.float32(-0.3), 0))
        cases = {
            "sqr": ("unary.cc", {"FUNCTION": "sqr"}, np.where(np.abs(ends) > 1e20, np.inf, ends.astype(np.float64) ** 2)),
            "leaky_relu": ("unary.cc", {"FUNCTION": "leaky_relu", "PARAMETER_0": bits}, leaky),
            "scale": ("scale.cc", {"FACTOR": bits}, ends * np.float32(-0.3)),
        }
        for arch in architectures(self):
            for name, (source, macros, expected) in cases.items():
                with self.subTest(arch=arch, function=name), np.errstate(all="ignore"):
                    function = self.cores.function(arch, source, INPUT_TYPE="float", OUTPUT_TYPE="float", **macros)
                    given, out = Buffer("f32", 64, ends), Buffer("f32", len(ends))
                    function(given.pointer, out.pointer, len(ends))
                    np.testing.assert_allclose(out.values, expected, rtol=1e-6)
            with self.subTest(arch=arch, function="glu"), np.errstate(all="ignore"):
                function = self.cores.function(arch, "glu.cc", INPUT_TYPE="float", GATE="relu")
                gate = np.array([2.0, 2.0, -1.0, np.inf, np.inf, np.inf], np.float32)
                x, g, out = Buffer("f32", 64, gate), Buffer("f32", 64, ends), Buffer("f32", len(ends))
                function(x.pointer, g.pointer, out.pointer, len(ends))
                np.testing.assert_allclose(out.values, np.maximum(gate, 0) * ends, rtol=1e-6)

    def test_quotients_at_the_ends_of_the_range(self):
        ends = [0.0, -0.0, 1.0, -3.0, 1e-30, 1e30, -2e38, 3e-38, np.inf, -np.inf, np.nan]
        x, y = (v.ravel().astype(np.float32) for v in np.meshgrid(ends, ends))
        a, b, out = Buffer("f32", 128, x), Buffer("f32", 128, y), Buffer("f32", len(x))
        macros = dict.fromkeys(("INPUT_0_TYPE", "INPUT_1_TYPE", "OUTPUT_TYPE"), "float")
        with np.errstate(all="ignore"):
            expected = x.astype(np.float64) / y
        for arch in architectures(self):
            function = self.cores.function(arch, "binary.cc", FUNCTION="div", **macros)
            function(a.pointer, b.pointer, out.pointer, len(x))
            for i, exact in enumerate(expected):
                with self.subTest(arch=arch, a=x[i], b=y[i]):
                    got = float(out.values[i])
                    if np.isnan(exact) or np.isinf(exact) or exact == 0:
                        np.testing.assert_equal(got, exact)
                    elif 1e-37 < abs(exact) < 3.4e38:
                        self.assertLess(abs(got / exact - 1), 1e-6)
                    else:
                        # Out of the range of f32's normal numbers: nothing, or more than there is.
                        self.assertTrue(abs(got) < 1e-36 if abs(exact) < 1 else np.isinf(got))

    def test_integers_wrap(self):
        for arch in architectures(self):
            for dtype in INTEGERS:
                for name in ("add", "sub", "mul"):
                    function = self.cores.function(arch, "binary_integer.cc", FUNCTION=name, ELEMENT_TYPE=CPP_TYPES[dtype])
                    for count in COUNTS:
                        with self.subTest(arch=arch, dtype=dtype, function=name, count=count):
                            a, b, out = self.integers(dtype, count), self.integers(dtype, count), Buffer(dtype, count)
                            function(a.pointer, b.pointer, out.pointer, count)
                            # Python's integers do not wrap, those of 64 bits do when i32 is squared twice only.
                            x, y = (v.values[:count].astype(np.int64) for v in (a, b))
                            np.testing.assert_array_equal(out.values, wrapped(dtype, OPERATIONS[name](x, y)))
                            self.assertTrue(out.intact)

    def test_functions_of_one_integer(self):
        exact = {
            "abs": np.abs,
            "neg": np.negative,
            "sgn": np.sign,
            "relu": lambda x: np.maximum(x, 0),
            "step": lambda x: (x > 0).astype(np.int64),
        }
        for arch in architectures(self):
            for dtype in INTEGERS:
                for name, definition in exact.items():
                    function = self.cores.function(arch, "unary_integer.cc", FUNCTION=name, ELEMENT_TYPE=CPP_TYPES[dtype])
                    for count in COUNTS:
                        with self.subTest(arch=arch, dtype=dtype, function=name, count=count):
                            a, out = self.integers(dtype, count), Buffer(dtype, count)
                            function(a.pointer, out.pointer, count)
                            expected = wrapped(dtype, definition(a.values[:count].astype(np.int64)))
                            np.testing.assert_array_equal(out.values, expected)
                            self.assertTrue(out.intact)

    def test_a_second_source_that_repeats(self):
        shapes = [
            ((64, 3, 2, 1), (64, 1, 1, 1)),
            ((64, 3, 2, 1), (1, 3, 1, 1)),
            ((64, 3, 2, 2), (32, 1, 2, 1)),
            ((7, 5, 3, 2), (7, 1, 3, 1)),
            ((12, 6, 4, 2), (4, 3, 2, 1)),
            ((5, 1, 1, 1), (1, 1, 1, 1)),
        ]
        for arch in architectures(self):
            for first, second in shapes:
                extents = ",".join(map(str, first + second))
                for dtype in ("f32", "bf16", "i8", "i32"):
                    with self.subTest(arch=arch, first=first, second=second, dtype=dtype):
                        self.repeated(arch, first, second, dtype, extents)

    def repeated(self, arch, first, second, dtype, extents):
        count, integer = int(np.prod(first)), dtype in INTEGERS
        make = self.integers if integer else self.floats
        a, b = make(dtype, count), make(dtype, int(np.prod(second)))
        if integer:
            macros = {"ELEMENT_TYPE": CPP_TYPES[dtype]}
        else:
            macros = dict.fromkeys(("INPUT_0_TYPE", "INPUT_1_TYPE", "OUTPUT_TYPE"), CPP_TYPES[dtype])
        source = "binary_integer_repeated.cc" if integer else "binary_repeated.cc"
        function = self.cores.function(arch, source, FUNCTION="sub", EXTENTS=extents, **macros)
        progress, tile = Buffer("i32", 16, np.zeros(16, np.int32)), 64
        calls = -(-count // tile)
        wide = np.int64 if integer else np.float64
        x = a.values[:count].reshape(first[::-1]).astype(wide)
        y = b.values[: int(np.prod(second))].reshape(second[::-1]).astype(wide)
        exact = (x - np.tile(y, [n // m for n, m in zip(first[::-1], second[::-1])])).ravel()
        for call in range(calls):
            here = slice(call * tile, min(count, call * tile + tile))
            part = Buffer(dtype, tile, a.values[here])
            out = Buffer(dtype, here.stop - here.start)
            function(part.pointer, b.pointer, out.pointer, progress.pointer, here.stop - here.start, 0, tile, calls)
            if integer:
                np.testing.assert_array_equal(out.values, wrapped(dtype, exact[here]))
                self.assertTrue(out.intact)
            else:
                self.check(out, exact[here])
        self.assertEqual(progress.values[0], 0)


if __name__ == "__main__":
    unittest.main()
