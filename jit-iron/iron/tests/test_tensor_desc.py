"""Tensors from the protocol, against ggml's rules."""

import re
import unittest

from support import IRON
from tensor_desc import DATA_TYPES, TensorDesc


class TensorDescTest(unittest.TestCase):
    def test_from_json(self):
        tensor = TensorDesc.from_json({"dtype": "f32", "ne": [10, 5, 4, 3], "nb": [4, 40, 200, 800]})
        self.assertEqual((tensor.dtype, tensor.shape, tensor.stride), ("f32", (10, 5, 4, 3), (4, 40, 200, 800)))
        self.assertEqual((tensor.size, tensor.numel(), tensor.nbytes, tensor.itemsize), (600, 600, 2400, 4))
        self.assertTrue(tensor.contiguous)

    def test_strides_without_gaps_are_made(self):
        self.assertEqual(TensorDesc("bf16", (8, 3, 2, 1)).stride, (2, 16, 48, 96))
        blocks = TensorDesc("q4_0", (64, 2, 1, 1))
        self.assertEqual((blocks.stride, blocks.nbytes, blocks.size), ((18, 36, 72, 72), 72, 128))

    def test_contiguity(self):
        for dtype, ne, nb, contiguous in (
            ("f32", (8, 4, 1, 1), (4, 32, 128, 128), True),
            ("f32", (8, 4, 1, 1), (4, 36, 144, 144), False),
            ("f32", (8, 4, 1, 1), (16, 4, 128, 128), False),
            ("f32", (8, 4, 2, 1), (4, 32, 256, 256), False),
            # The stride of a dimension of one element says nothing.
            ("f32", (8, 1, 2, 1), (4, 999, 32, 999), True),
            ("f32", (1, 4, 1, 1), (64, 4, 16, 16), True),
            ("q4_0", (32, 4, 1, 1), (18, 18, 72, 72), True),
            ("q4_0", (64, 4, 1, 1), (18, 18, 72, 72), False),
        ):
            with self.subTest(dtype=dtype, ne=ne, nb=nb):
                self.assertIs(TensorDesc(dtype, ne, nb).contiguous, contiguous)

    def test_what_is_no_tensor_is_rejected(self):
        good = {"dtype": "f32", "ne": [8, 1, 1, 1], "nb": [4, 32, 32, 32]}
        for change, message in (
            ({"dtype": "f31"}, "type 'f31' is not known"),
            ({"ne": [8, 1, 1]}, "extents of a tensor are four whole numbers"),
            ({"ne": [8, 1, 1, -1]}, "four whole numbers"),
            ({"ne": [8, 1, 1, True]}, "four whole numbers"),
            ({"nb": [4.0, 32, 32, 32]}, "strides of a tensor are four whole numbers"),
            ({"nb": None, "ne": "8111"}, "four whole numbers"),
            ({"dtype": "q4_0"}, "a row of 8 elements of q4_0 is not whole blocks of 32"),
        ):
            with self.subTest(change=change), self.assertRaisesRegex(ValueError, re.escape(message)):
                TensorDesc.from_json(good | change)
        for wrong in (None, [], {"dtype": "f32"}):
            with self.subTest(wrong=wrong), self.assertRaisesRegex(ValueError, "an object with dtype, ne and nb"):
                TensorDesc.from_json(wrong)

    def test_types_are_those_of_the_rust_side(self):
        rust = (IRON.parents[1] / "ops" / "src" / "tensor.rs").read_text(encoding="utf-8")
        declared = re.findall(r'^    \w+ = "(\w+)", (\d+), (\d+);$', rust, re.MULTILINE)
        self.assertEqual(DATA_TYPES, {name: (int(elements), int(size)) for name, elements, size in declared})


if __name__ == "__main__":
    unittest.main()
