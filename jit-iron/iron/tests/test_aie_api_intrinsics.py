"""Intrinsics of the compilers that public kernels use beside aie_api."""

import unittest

from core_snippets import ARCHITECTURES, Snippets, aligned, call, np

SOURCE = """
extern "C" void spread(int32 *out) {
    aie::store_v(out, broadcast_to_v16int32(-7));
    aie::store_v(out + 16, broadcast_zero_s32());
    const v16int32 numbers = aie::load_v<16>(out + 32);
    aie::store_v(out + 48, broadcast_elem(numbers, 5));
    out[64] = extract_elem(numbers, 15);
    out[65] = ext_elem(numbers, 0);
}

extern "C" void relu(const bfloat16 *in, bfloat16 *out) {
    aie::store_v(out, max(aie::load_v<32>(in), broadcast_zero_bfloat16()));
    aie::store_v(out + 32, add(broadcast_one_to_v32bfloat16(), broadcast_zero_to_v32bfloat16()));
}

extern "C" void beyond(int32 *out) { out[0] = extract_elem(broadcast_to_v16int32(1), 16); }
"""


class IntrinsicsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.snippets = Snippets()
        cls.addClassCleanup(cls.snippets.close)

    def test_elements_and_constants(self):
        for arch in ARCHITECTURES:
            with self.subTest(arch=arch):
                out = aligned(np.arange(80, dtype=np.int32))
                call(self.snippets.library(arch, SOURCE), "spread", out)
                expected = [-7] * 16 + [0] * 16 + list(range(32, 48)) + [37] * 16 + [47, 32] + list(range(66, 80))
                self.assertEqual(out.tolist(), expected)

    def test_maxima_of_bf16(self):
        for arch in ARCHITECTURES:
            with self.subTest(arch=arch):
                # The bits of -1, 2 and -0.5 by turns.
                given = aligned(np.array([0xBF80, 0x4000, 0xBF00, 0x0000] * 8, np.uint16))
                out = aligned(np.zeros(64, np.uint16))
                call(self.snippets.library(arch, SOURCE), "relu", given, out)
                self.assertEqual(out.tolist(), [0, 0x4000, 0, 0] * 8 + [0x3F80] * 32)

    def test_an_element_beyond_the_vector_is_an_error(self):
        with self.assertRaisesRegex(AssertionError, "extract_elem: element 16 of a vector of 16"):
            call(self.snippets.library("aie2", SOURCE), "beyond", aligned(np.zeros(16, np.int32)))


if __name__ == "__main__":
    unittest.main()
