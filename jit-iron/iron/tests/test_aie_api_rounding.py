"""Rounding and saturation of the header that stands for aie_api, by values that an NPU gave and by exact arithmetic."""

from __future__ import annotations

import json
import unittest
from fractions import Fraction

import numpy as np
from core_snippets import ARCHITECTURES, ROUNDING, TESTS, Snippets, aligned, call, compilers
from ml_dtypes import bfloat16

SILICON = json.loads((TESTS / "silicon_values.json").read_text())

SHIFTS = """
extern "C" void narrow(const TYPE *in, RESULT *out, int count, int shift) {
    for (int i = 0; i < count; i += 16) {
        aie::accum<TAG, 16> sums;
        sums.from_vector(aie::load_v<16>(in + i));
        aie::store_v(out + i, sums.to_vector<RESULT>(shift));
    }
}
"""

CONVERSIONS = """
extern "C" void to_bf16(const float *in, bfloat16 *out, int count) {
    for (int i = 0; i < count; i += 16)
        aie::store_v(out + i, aie::accum<accfloat, 16>(aie::load_v<16>(in + i)).to_vector<bfloat16>());
}
extern "C" void scalars_to_bf16(const float *in, bfloat16 *out, int count) {
    for (int i = 0; i < count; ++i)
        out[i] = in[i];
}
extern "C" void to_f32(const bfloat16 *in, float *out, int count) {
    for (int i = 0; i < count; i += 16)
        aie::store_v(out + i, aie::accum<accfloat, 16>(aie::load_v<16>(in + i)).to_vector<float>());
}
extern "C" void floor_of(const bfloat16 *in, int32 *out, int count) {
    for (int i = 0; i < count; i += 16)
        aie::store_v(out + i, aie::to_fixed_floor<int32>(aie::load_v<16>(in + i)));
}
"""


def rounded(value: Fraction, mode: str) -> int:
    """By exact arithmetic."""
    below = value.numerator // value.denominator
    rest = value - below
    if rest == 0:
        return below
    if rest != Fraction(1, 2) and mode not in ("floor", "ceil", "symmetric_floor", "symmetric_ceil"):
        return below + (rest > Fraction(1, 2))
    up = {
        "floor": False, "ceil": True, "symmetric_floor": value < 0, "symmetric_ceil": value > 0, "negative_inf": False,
        "positive_inf": True, "symmetric_zero": value < 0, "symmetric_inf": value > 0, "conv_even": below % 2 == 1,
        "conv_odd": below % 2 == 0,
    }  # fmt: skip
    return below + up[mode]


@unittest.skipUnless(compilers(), "there is no C++ compiler on this machine")
class RoundingTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.snippets = Snippets()
        cls.addClassCleanup(cls.snippets.close)

    def test_f32_becomes_bf16_as_on_silicon(self):
        for number in (0, 1, 2, 3, 8):
            values = SILICON[f"vec_conv_bf16_edge_r{number}"]
            given = aligned(np.array(values["input"], np.uint32).view(np.float32))
            for arch in ARCHITECTURES:
                for function in ("to_bf16", "scalars_to_bf16"):
                    out = aligned(np.zeros(len(given), np.uint16))
                    call(self.snippets.library(arch, CONVERSIONS), function, given, out, len(given), modes=number)
                    self.assertEqual(out.tolist(), values["silicon"], f"{arch} {function} in mode {number}")

    def test_bf16_becomes_f32_and_integer_as_on_silicon(self):
        for kernel, function in (("vec_convexp_bf16_denorm", "to_f32"), ("vec_vfloor_bf16_denorm", "floor_of")):
            values = SILICON[kernel]
            given = aligned(np.array(values["input"], np.uint16))
            for arch in ARCHITECTURES:
                out = aligned(np.zeros(len(given), np.uint32))
                call(self.snippets.library(arch, CONVERSIONS), function, given, out, len(given))
                self.assertEqual(out.tolist(), [number & 0xFFFFFFFF for number in values["silicon"]], f"{arch} {function}")

    def test_f32_becomes_bf16_as_exact_arithmetic_has_it(self):
        generator = np.random.default_rng(1)
        bits = generator.integers(0, 1 << 32, 256, dtype=np.uint32)
        bits[1::2] = bits[1::2] & 0xFFFF0000 | 0x8000
        bits[(bits & 0x7F800000) == 0x7F800000] = 0x3F808000
        given = aligned(bits.view(np.float32))
        for arch in ARCHITECTURES:
            for mode, number in ROUNDING.items():
                out = aligned(np.zeros(len(given), np.uint16))
                call(self.snippets.library(arch, CONVERSIONS), "to_bf16", given, out, len(given), modes=number)
                for before, after in zip(bits.tolist(), out.tolist()):
                    # Bit patterns of one sign grow by the magnitude, so a pattern is rounded like a number; parity is the pattern's.
                    sign = -1 if before >> 31 else 1
                    magnitude = rounded(sign * Fraction(before & 0x7FFFFFFF, 1 << 16), mode)
                    self.assertEqual(after & 0x7FFF, abs(magnitude), f"{arch} {mode}: {before:#x}")
                    self.assertEqual(after >> 15, before >> 31)

    def test_integers_are_shifted_rounded_and_saturated(self):
        generator = np.random.default_rng(2)
        limits = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-32768, 32767), "int32": (-(2**31), 2**31 - 1)}
        for tag, of_type, result in (("acc32", "int16", "int8"), ("acc32", "int16", "uint8"), ("acc48", "int32", "int16"),
                                     ("acc64", "int32", "int32"), ("acc32", "int32", "int16")):  # fmt: skip
            info = np.iinfo(of_type)
            given = aligned(generator.integers(info.min, info.max, 64, endpoint=True).astype(of_type))
            given[:8] = [info.min, info.max, 0, -1, 1, 24, -24, 8]
            flags = (f"-DTAG={tag}", f"-DTYPE={of_type}", f"-DRESULT={result}")
            low, high = limits[result]
            for arch in ARCHITECTURES:
                library = self.snippets.library(arch, SHIFTS, *flags)
                for mode, number in ROUNDING.items():
                    for saturation in (0, 1, 3):
                        for shift in (0, 1, 4, 9):
                            out = aligned(np.zeros(64, result))
                            call(library, "narrow", given, out, 64, shift, modes=number | saturation << 8)
                            whole = [rounded(Fraction(int(value), 1 << shift), mode) for value in given]
                            if saturation:
                                least = -high if saturation == 3 and low else low
                                expected = [min(max(value, least), high) for value in whole]
                            else:
                                expected = [(value - low) % (high - low + 1) + low for value in whole]
                            self.assertEqual(out.tolist(), expected, f"{arch} {tag} {result} {mode} {saturation} {shift}")

    def test_modes_are_set_by_the_function_and_read_by_the_simulator(self):
        source = """
        extern "C" void set() {
            aie::set_rounding(aie::rounding_mode::conv_even);
            aie::set_saturation(aie::saturation_mode::saturate);
        }
        extern "C" void add(const bfloat16 *a, const bfloat16 *b, bfloat16 *out) {
            aie::store_v(out, aie::add(aie::load_v<16>(a), aie::load_v<16>(b)));
        }
        """
        for arch in ARCHITECTURES:
            library = self.snippets.library(arch, source)
            call(library, "set")
            self.assertEqual(library.aie_simulator_modes(), ROUNDING["conv_even"] | 1 << 8)
            a, b = (aligned(np.full(16, value, bfloat16)) for value in (1.0, 0.006))
            results = []
            for mode in ("floor", "ceil", "conv_even"):
                out = aligned(np.zeros(16, bfloat16))
                call(library, "add", a, b, out, modes=ROUNDING[mode])
                results.append(float(out[3]))
            self.assertEqual(results, [1.0, 1.0078125, 1.0078125])

    def test_constants_are_rounded_to_the_nearest_whatever_the_mode(self):
        source = 'extern "C" void constant(bfloat16 *out) { aie::store_v(out, aie::broadcast<bfloat16, 16>(1.1f)); }'
        for arch in ARCHITECTURES:
            for compiler in compilers():
                out = aligned(np.zeros(16, bfloat16))
                call(self.snippets.library(arch, source, compiler=compiler), "constant", out, modes=ROUNDING["floor"])
                self.assertEqual(out[0], bfloat16(1.1), f"{arch} {compiler}")


if __name__ == "__main__":
    unittest.main()
