"""How the cores of a column share a block of a matrix product."""

import os
import sys
import unittest

from kernel_cores import IRON, NUMPY_TYPES, Buffer, CoreFunctions, architectures, np

sys.path[:0] = [str(IRON / "kernels"), str(IRON)]

from simulator import installation  # noqa: E402  (needs the path above)

installation.install("1.3")

from design import Unsupported  # noqa: E402
from tensor_desc import TensorDesc  # noqa: E402

CHUNK, ROWS_A, CORES = 64, 64, 4
MACROS = {"A_TYPE": "float", "B_TYPE": "float", "SUM_TYPE": "float", "CHUNK": str(CHUNK), "FLOATS": "1"}
UNTOUCHED = -7.0
# In CI fewer shapes (KERNELS: see test_kernels_simulated.py).
ALL = os.environ.get("KERNELS") == "all"


def design():
    """The module with the design, as the simulator's IRON has it now."""
    installation.install("1.3")
    for name in ("mul_mat", "elementwise", "iron_program"):
        sys.modules.pop(name, None)
    import mul_mat

    return mul_mat


class SharesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cores = CoreFunctions()
        cls.addClassCleanup(cls.cores.close)

    def words_of(self, arch, core, rows_a, rows_b):
        """The words of the result that `core` computes, row of source 1 by row of source 1."""
        multiply = self.cores.function(arch, "mul_mat.cc", MULTIPLY_ROW="1", **MACROS)
        told = [0, CHUNK, 1 << 30, 0, 0]
        job = Buffer("i32", 32, np.array([1, 1, rows_a, rows_b, 1, CHUNK, CHUNK, *told, *told], np.int32))
        progress = Buffer("i32", 32, np.zeros(32, np.int32))
        ones = np.ones(16 * CHUNK, np.float32)
        row, kept = Buffer("f32", CHUNK, ones[:CHUNK]), Buffer("f32", 16 * CHUNK, ones)
        rows = Buffer("f32", 8 * CHUNK)
        sums = Buffer("f32", 16 * ROWS_A, np.full(16 * ROWS_A, UNTOUCHED, np.float32))
        for _ in range(rows_a):
            multiply(row.pointer, kept.pointer, rows.pointer, sums.pointer, job.pointer, progress.pointer, core)
        self.assertTrue(sums.intact and rows.intact)
        self.assertEqual(progress.values.tolist(), [0] * 32)
        block = sums.values.reshape(16, ROWS_A)
        self.assertTrue((block[rows_b:] == UNTOUCHED).all() and (block[:, rows_a:] == UNTOUCHED).all())
        words = block[:rows_b, :rows_a].ravel()
        self.assertTrue(((words == UNTOUCHED) | (words == CHUNK)).all())
        return np.flatnonzero(words != UNTOUCHED).tolist()

    def test_every_word_is_that_of_one_core(self):
        for arch in architectures(self):
            for rows_a, rows_b in ((64, 16), (64, 1), (64, 3), (63, 16), (62, 5), (7, 3), (1, 16), (1, 1), (2, 2)):
                with self.subTest(arch=arch, rows_a=rows_a, rows_b=rows_b):
                    total = rows_a * rows_b
                    for core in range(CORES):
                        expected = {*range(core, total, CORES), total - 1}
                        self.assertEqual(self.words_of(arch, core, rows_a, rows_b), sorted(expected))

    def test_all_cores_are_used_and_each_column_writes(self):
        for arch, columns in (("aie2", 4), ("aie2p", 8)):
            for blocks in (1, columns):
                with self.subTest(arch=arch, blocks=blocks):
                    built, a, b, output = self.build(arch, "f32", CHUNK, 64 * blocks, 3)
                    x, y = (np.ones(t.size, np.float32) for t in (a, b))
                    result = np.zeros(output.size, np.float32)
                    built.execute([x, y, result])
                    np.testing.assert_array_equal(result, CHUNK)
                    self.assertEqual((built.report.cores, built.report.columns), (CORES * columns, columns))
                    written = [transfer for transfer in built.report.transfers if transfer["argument"] == 2]
                    self.assertEqual({t["column"] for t in written}, set(range(columns)))

    def build(self, arch, dtype, length, rows_a, rows_b):
        a, b = TensorDesc(dtype, (length, rows_a, 1, 1)), TensorDesc(dtype, (length, rows_b, 1, 1))
        output = TensorDesc({"i8": "i32"}.get(dtype, "f32"), (rows_a, rows_b, 1, 1))
        return design().ggml_op_mul_mat(arch, [a, b], output, bytearray(64)), a, b, output

    def test_all_shapes_of_two_types_have_one_array(self):
        def array(program):
            """What the PDI is made of, but for the text of the cores' programs, which names no extents."""
            fifos = [(f.name, str(f.of_type), f.producer.depth, f.producer.dims, [c.depth for c in f.consumers]) for f in program.fifos]
            buffers = [(b.name, str(b.of_type), str(b.tile)) for b in program.buffers]
            cores = [(str(core.tile), core.stack) for core in program.cores]
            return program.device.name, fifos, buffers, cores, sorted((name, repr(s)) for name, s in program.objects.items())

        for arch in architectures(self):
            for dtype in ("f32", "bf16", "i8"):
                one, *others = (array(self.build(arch, dtype, *shape)[0].program) for shape in ((1, 1, 1), (33, 7, 3), (256, 1024, 40)))
                for other in others:
                    self.assertEqual(one, other)

    def test_products_of_matrices_and_of_rows_share_sums(self):
        # Two rows of source 1 and more are multiplied as tiles, one row by itself; chunks of both are added up over calls.
        for arch in architectures(self):
            for types in (("bf16", "bf16", "f32"), ("i8", "i8", "i32"), ("i16", "i16", "i32"), ("i32", "i32", "i32")):
                for rows_b in (1, 2, 16) if ALL else (1, 16):
                    for length in (1, 100, 515) if ALL else (515,):
                        with self.subTest(arch=arch, types=types, rows_b=rows_b, length=length):
                            self.product(arch, types, length, rows_b)

    def test_sums_of_words_wrap(self):
        for arch in architectures(self):
            with self.subTest(arch=arch):
                self.product(arch, ("i32",) * 3, 100, 3, largest=1 << 31)

    def product(self, arch, types, length, rows_b, largest=8):
        a, b = TensorDesc(types[0], (length, 64, 1, 1)), TensorDesc(types[1], (length, rows_b, 1, 1))
        output = TensorDesc(types[2], (64, rows_b, 1, 1))
        # Integers: sums of small ones are exact in every order, of large ones the low bits.
        numbers = np.random.default_rng(length)
        x, y = (numbers.integers(-largest, largest, t.size).astype(NUMPY_TYPES[t.dtype]) for t in (a, b))
        result = np.zeros(output.size, NUMPY_TYPES[output.dtype])
        design().ggml_op_mul_mat(arch, [a, b], output, bytearray(64)).execute([x, y, result])
        exact = y.reshape(rows_b, length).astype(np.int64) @ x.reshape(64, length).astype(np.int64).T
        np.testing.assert_array_equal(result, exact.ravel().astype(result.dtype))

    def test_infinity_stays_within_its_row(self):
        for arch in architectures(self):
            for dtype in ("f32", "bf16"):
                with self.subTest(arch=arch, dtype=dtype):
                    a, b = TensorDesc(dtype, (CHUNK, 64, 1, 1)), TensorDesc(dtype, (CHUNK, 2, 1, 1))
                    x, y = (np.ones(t.size, NUMPY_TYPES[dtype]) for t in (a, b))
                    x[5 * CHUNK + 3] = np.inf
                    y[3] = 1.375
                    result = np.zeros((2, 64), np.float32)
                    built = design().ggml_op_mul_mat(arch, [a, b], TensorDesc("f32", (64, 2, 1, 1)), bytearray(64))
                    built.execute([x, y, result])
                    # Infinite, or not a number: some products of the parts of f32 are not.
                    self.assertFalse(np.isfinite(result[:, 5]).any())
                    others = np.delete(result, 5, axis=1)
                    np.testing.assert_array_equal(others, [[CHUNK + 0.375] * 63, [CHUNK] * 63])

    def test_buffers_are_refused_when_they_do_not_fit(self):
        tensor = TensorDesc("f32", (CHUNK, 64, 1, 1))
        module = design()
        self.addCleanup(sys.modules.pop, "mul_mat")
        module.ROWS_B = 256
        with self.assertRaisesRegex(Unsupported, r"a block of a matrix product needs \d+ bytes of a core's 65536: 8 rows of source 0"):
            module.ggml_op_mul_mat("aie2", [tensor, tensor], TensorDesc("f32", (64, 64, 1, 1)), bytearray(64))


if __name__ == "__main__":
    unittest.main()
