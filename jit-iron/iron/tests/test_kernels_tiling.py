"""How elements are divided: everything once, nothing beyond the last word, and budgets that are kept."""

import sys
import unittest

from support import IRON

sys.path.insert(0, str(IRON / "kernels"))

import generation  # noqa: E402  (needs the path above)
import tiling  # noqa: E402
from design import Unsupported  # noqa: E402

SIZES = [[4, 4], [2, 2], [1, 1], [2, 4, 2], [4, 2, 4]]
COUNTS = [*range(1, 140), 1023, 1024, 1025, 4095, 4096, 4097, 11_008 * 3 + 1, 1_000_003]


class DivideTest(unittest.TestCase):
    def plans(self):
        for columns in (4, 8):
            for sizes in SIZES:
                for count in COUNTS:
                    if len(set(sizes)) > 1 and count % tiling.granule(sizes):
                        continue  # Refused, below.
                    yield count, sizes, columns, tiling.divide(count, sizes, columns, 4096 // max(sizes))

    def test_every_element_is_in_one_share(self):
        for count, sizes, columns, plan in self.plans():
            at = 0
            for share in plan.shares:
                self.assertEqual(share.first, at)
                at += share.tiles * plan.tile + share.tail
                self.assertGreater(share.tiles + share.tail, 0)
            self.assertEqual(at, plan.elements)
            self.assertEqual([share.column for share in plan.shares], list(range(len(plan.shares))))
            self.assertLessEqual(len(plan.shares), columns)

    def test_only_the_last_word_is_completed(self):
        for count, sizes, _, plan in self.plans():
            self.assertTrue(0 <= plan.elements - count < plan.granule)
            for size in sizes:
                self.assertEqual(plan.elements * size % 4, 0)
                self.assertEqual(plan.tail * size % 4, 0)
                self.assertEqual(plan.tile * size % generation.VECTOR_BYTES, 0)

    def test_columns_work_where_there_is_something_for_them(self):
        for count, _, columns, plan in self.plans():
            if count >= 64 * columns**2:
                self.assertEqual(len(plan.shares), columns)
            work = [share.tiles + (share.tail > 0) for share in plan.shares]
            self.assertLessEqual(max(work) - min(work), 1)

    def test_a_tile_smaller_than_a_vector_is_refused(self):
        with self.assertRaisesRegex(ValueError, "must be 64 at least"):
            tiling.divide(100, [1], 4, 32)

    def test_words_that_end_behind_a_wider_type_are_refused(self):
        with self.assertRaisesRegex(Unsupported, "33 elements of 2 and 4 bytes.*a multiple of 2 elements works"):
            tiling.divide(33, [2, 4], 4, 1024)
        self.assertEqual((tiling.divide(33, [2, 2], 4, 1024).elements, tiling.divide(34, [2, 4], 4, 1024).elements), (34, 34))


class FillerTest(unittest.TestCase):
    def test_gives_what_is_wanted_from_what_is_there(self):
        for available in range(4, 200, 4):
            for wanted in range(0, 64, 4):
                taps = tiling.filler(available, wanted, 4)
                self.assertEqual(sum(tap.elements for tap in taps), wanted)
                self.assertLessEqual(len(taps), 2)
                for tap in taps:
                    self.assertLessEqual(tap.offset + tap.sizes[-1], available)
                    self.assertLessEqual(tap.sizes[0], tiling.MOST_REPEATS)


class MemoryTest(unittest.TestCase):
    def test_what_does_not_fit_is_said_with_numbers(self):
        generation.require_memory("it", {"a": 60_000})
        with self.assertRaisesRegex(Unsupported, r"it needs 65537 bytes of a core's 65536: a 62465 \+ stack 1024 \+ constants 2048"):
            generation.require_memory("it", {"a": 62_465})

    def test_an_unknown_generation_is_named(self):
        with self.assertRaisesRegex(Unsupported, "no design for 'aie4'; there are designs for aie2, aie2p"):
            generation.generation("aie4")


if __name__ == "__main__":
    unittest.main()
