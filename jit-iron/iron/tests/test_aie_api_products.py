"""Products and sums of products of the header that stands for aie_api."""

from __future__ import annotations

import json
import unittest

import numpy as np
from core_snippets import ARCHITECTURES, TESTS, Snippets, aligned, call, compilers
from ml_dtypes import bfloat16

SILICON = json.loads((TESTS / "silicon_values.json").read_text())

MATRICES = """
template <typename Product, typename Result, typename Left, typename Right>
void multiply(const Left *a, const Right *b, Result *out, int times) {
    Product product;
    product.mul(aie::load_v<Product::size_A>(a), aie::load_v<Product::size_B>(b));
    if (times == 2)
        product.mac(aie::load_v<Product::size_A>(a), aie::load_v<Product::size_B>(b));
    const auto sums = product.template to_vector<Result>();
    for (unsigned i = 0; i < Product::size_C; ++i)
        out[i] = sums.get(i);
}
"""


def matrix_function(a: str, b: str, m: int, k: int, n: int) -> tuple[str, str]:
    """A function for one shape: its name and its source."""
    name, result = f"multiply_{a}_{b}_{m}x{k}x{n}", "float" if a in ("bfloat16", "float") else "int32"
    call_it = f"multiply<aie::mmul<{m}, {k}, {n}, {a}, {b}>, {result}>(a, b, out, times);"
    return name, f'extern "C" void {name}(const {a} *a, const {b} *b, {result} *out, int times) {{ {call_it} }}\n'


# The tables of aie_api's documentation: (M, K, N) by the types of A and B.
SHAPES = {
    "aie2": {
        ("int8", "int8"): "4x8x4 4x16x4 8x8x4 2x8x8 4x8x8 8x8x8 1x16x8 2x16x8 4x16x8",
        ("int16", "int8"): "4x4x4 8x4x4 4x8x4 4x4x8 8x4x8 2x8x8",
        ("int8", "int16"): "4x4x8 4x4x4",
        ("int16", "int16"): "4x4x4 2x4x8 4x4x8 4x2x8 8x2x8 8x1x8",
        ("int32", "int16"): "2x4x8 4x4x8 4x4x4 4x2x4 4x1x8",
        ("bfloat16", "bfloat16"): "4x8x4 8x8x4 4x16x8 4x16x4 4x8x8 8x8x8 8x1x8",
        ("float", "float"): "4x8x4 4x1x4 4x1x8",
    },
    "aie2p": {
        ("int8", "int8"): "4x8x8 8x8x8",
        ("int16", "int8"): "4x4x8 8x4x8 4x8x8 2x8x8",
        ("int8", "int16"): "8x2x8 4x4x8",
        ("int16", "int16"): "4x2x8 8x2x8 2x4x8 4x4x8 8x1x8",
        ("int32", "int16"): "4x2x8 2x4x8 4x4x8",
        ("bfloat16", "bfloat16"): "8x8x4 4x8x8 4x8x4 8x8x8 8x1x8",
        ("float", "float"): "4x8x4",
    },
}
NUMPY = {"int8": np.int8, "int16": np.int16, "int32": np.int32, "bfloat16": bfloat16, "float": np.float32}


def shapes(arch: str) -> list[tuple]:
    """(type of A, type of B, M, K, N) of all products of matrices whose operands are vectors."""
    found = []
    for (a, b), text in SHAPES[arch].items():
        found += [(a, b, *map(int, shape.split("x"))) for shape in text.split()]
    return found


def numbers(generator: np.random.Generator, of_type: str, count: int) -> np.ndarray:
    if of_type in ("bfloat16", "float"):
        return aligned(generator.normal(size=count).astype(NUMPY[of_type]))
    info = np.iinfo(NUMPY[of_type])
    # The sums of 32-bit lanes stay within them.
    return aligned(generator.integers(max(info.min, -20000), min(info.max, 20000), count).astype(NUMPY[of_type]))


@unittest.skipUnless(compilers(), "there is no C++ compiler on this machine")
class ProductsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.snippets = Snippets()
        cls.addClassCleanup(cls.snippets.close)

    def test_sums_of_eight_bf16_products_are_those_of_silicon(self):
        values = SILICON["vec_mac_bf16_ovf"]
        name, source = matrix_function("bfloat16", "bfloat16", 4, 8, 4)
        library = self.snippets.library("aie2", MATRICES + source)
        equal = nan_payloads = 0
        for block in range(len(values["silicon"]) // 16):
            a, b = (aligned(np.array(values[key][block * 32 : block * 32 + 32], np.uint16)) for key in ("input_a", "input_b"))
            out = aligned(np.zeros(16, np.uint32))
            call(library, name, a, b, out, 1)
            for seen, expected in zip(out.tolist(), values["silicon"][block * 16 : block * 16 + 16]):
                equal += seen == expected
                # Of what is no number, two of 640 values have another payload, for which no rule was found.
                nan_payloads += seen != expected and (seen & expected & 0x7F800000) == 0x7F800000 and seen >> 31 == expected >> 31
        self.assertEqual((equal, nan_payloads), (862, 2))

    def test_products_of_matrices_of_every_shape(self):
        generator = np.random.default_rng(3)
        for arch in ARCHITECTURES:
            library = self.snippets.library(arch, MATRICES + "".join(matrix_function(*shape)[1] for shape in shapes(arch)))
            for a_type, b_type, m, k, n in shapes(arch):
                floats = a_type in ("bfloat16", "float")
                a, b = numbers(generator, a_type, m * k), numbers(generator, b_type, k * n)
                result = "float" if floats else "int32"
                wide = np.float64 if floats else np.int64
                exact = a.reshape(m, k).astype(wide) @ b.reshape(k, n).astype(wide)
                for times in (1, 2):
                    out = aligned(np.zeros((m, n), NUMPY[result]))
                    call(library, matrix_function(a_type, b_type, m, k, n)[0], a, b, out, times)
                    what = f"{arch} {a_type} x {b_type} {m}x{k}x{n}, {times} times"
                    if floats:
                        size = np.abs(a.reshape(m, k).astype(wide)) @ np.abs(b.reshape(k, n).astype(wide))
                        np.testing.assert_array_less(np.abs(out - times * exact), times * size * k * 2.0**-23 + 1e-30, what)
                    else:
                        np.testing.assert_array_equal(out, (times * exact).astype(np.int32), what)

    def test_a_shape_that_a_generation_lacks_does_not_compile(self):
        every = set(shapes("aie2")) | set(shapes("aie2p"))
        for arch in ARCHITECTURES:
            lacking = sorted(every - set(shapes(arch)))
            self.assertGreater(len(lacking), 0)
            source = "".join(f"template struct aie::mmul<{m}, {k}, {n}, {a}, {b}>;\n" for a, b, m, k, n in lacking)
            done, _ = self.snippets.attempt(arch, source)
            self.assertNotEqual(done.returncode, 0)
            self.assertEqual(done.stderr.count(f"{arch} has no product of matrices of these extents"), len(lacking), arch)

    def test_products_of_f32_keep_almost_all_digits(self):
        source = """
        extern "C" void products(const float *a, const float *b, float *out, int count) {
            for (int i = 0; i < count; i += 16)
                aie::store_v(out + i, aie::mul(aie::load_v<16>(a + i), aie::load_v<16>(b + i)).to_vector<float>());
        }
        extern "C" void sums(const float *a, const float *b, float *out, int count) {
            for (int i = 0; i < count; i += 16) {
                const aie::accum<accfloat, 16> before(aie::load_v<16>(out + i));
                aie::store_v(out + i, aie::mac(before, aie::load_v<16>(a + i), aie::load_v<16>(b + i)).to_vector<float>());
            }
        }
        """
        generator = np.random.default_rng(4)
        a, b, c = (aligned(generator.normal(size=4096).astype(np.float32)) for _ in range(3))
        exact = a.astype(np.float64) * b
        for arch in ARCHITECTURES:
            bounds = (("", 2.0**-23), ("-DAIE2_FP32_EMULATION_ACCURACY_LOW", 2.0**-13))
            for flag, bound in bounds:
                library = self.snippets.library(arch, source, *([flag] if flag else []))
                out = aligned(np.zeros(4096, np.float32))
                call(library, "products", a, b, out, 4096)
                self.assertLessEqual(np.max(np.abs(out - exact) / np.abs(exact)), bound, f"{arch} {flag}")
            out = aligned(c)
            call(self.snippets.library(arch, source), "sums", a, b, out, 4096)
            error = np.abs(out - (c + exact)) / (np.abs(c) + np.abs(exact))
            self.assertLessEqual(error.max(), 2.0**-22, arch)

    def test_integer_products_wrap_in_their_lanes(self):
        source = """
        extern "C" void products(const int32 *a, const int32 *b, int32 *out) {
            aie::store_v(out, aie::mul(aie::load_v<16>(a), aie::load_v<16>(b)).to_vector<int32>(0));
            aie::store_v(out + 16, aie::mul(aie::load_v<16>(a), aie::load_v<16>(b)).to_vector<int32>(32));
        }
        extern "C" void short_products(const int16 *a, const int16 *b, int32 *out) {
            aie::accum<acc32, 16> sums = aie::mul<acc32>(aie::load_v<16>(a), aie::load_v<16>(b));
            sums = aie::msc(aie::mac(sums, aie::load_v<16>(a), int16(3)), int16(-2), aie::load_v<16>(b));
            aie::store_v(out, sums.to_vector<int32>());
        }
        """
        generator = np.random.default_rng(5)
        a, b = (aligned(generator.integers(-(2**31), 2**31, 16).astype(np.int32)) for _ in range(2))
        exact = a.astype(object) * b.astype(object)
        short_a, short_b = (aligned(generator.integers(-(2**15), 2**15, 16).astype(np.int16)) for _ in range(2))
        short = short_a.astype(np.int64) * short_b + 3 * short_a.astype(np.int64) + 2 * short_b.astype(np.int64)
        for arch in ARCHITECTURES:
            library = self.snippets.library(arch, source)
            out = aligned(np.zeros(32, np.int32))
            call(library, "products", a, b, out)
            self.assertEqual(out[:16].tolist(), [(int(x) + 2**31) % 2**32 - 2**31 for x in exact], arch)
            self.assertEqual(out[16:].tolist(), [int(x) >> 32 for x in exact], arch)
            call(library, "short_products", short_a, short_b, out)
            self.assertEqual(out[:16].tolist(), short.astype(np.int32).tolist(), arch)

    def test_block_floating_point_on_request(self):
        generator = np.random.default_rng(6)
        a, b = numbers(generator, "bfloat16", 64), numbers(generator, "bfloat16", 64)
        name, source = matrix_function("bfloat16", "bfloat16", 8, 8, 8)
        library = self.snippets.library("aie2p", MATRICES + source, "-DAIE_API_EMULATE_BFLOAT16_MMUL_WITH_BFP16=1")
        out = aligned(np.zeros((8, 8), np.float32))
        call(library, name, a, b, out, 1)

        def blocks(rows):
            values = rows.astype(np.float64)
            scale = 2.0 ** (np.floor(np.log2(np.abs(values).max(axis=1, keepdims=True))) - 6)
            return np.floor(values / scale) * scale

        expected = blocks(a.reshape(8, 8)) @ blocks(b.reshape(8, 8).T).T
        np.testing.assert_array_equal(out, expected.astype(np.float32))


if __name__ == "__main__":
    unittest.main()
