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
            self.assertEqual(plan.elements, min(plan.moved(size) for size in sizes))
            for size in sizes:
                whole = sum(share.tiles for share in plan.shares) * plan.tile
                self.assertEqual(whole + plan.tail_of(size), plan.moved(size))
                self.assertTrue(0 <= plan.moved(size) - count < tiling.granule([size]))
                self.assertEqual(plan.moved(size) * size % 4, 0)
                self.assertEqual(plan.tail_of(size) * size % 4, 0)
                self.assertLessEqual(plan.tail_of(size), plan.tile)
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

    def test_types_of_different_widths_end_at_their_own_words(self):
        plan = tiling.divide(33, [2, 4], 4, 1024)
        self.assertEqual((plan.elements, plan.moved(2), plan.moved(4)), (33, 34, 33))
        self.assertEqual((plan.tile, plan.tail, plan.tail_of(2), plan.tail_of(4)), (32, 1, 2, 1))
        # The narrow type's last word ends with a tile, the wide one's a word before.
        plan = tiling.divide(63, [2, 4], 1, 1024)
        self.assertEqual((plan.tile, plan.shares[0].tiles, plan.tail_of(2), plan.tail_of(4)), (64, 0, 64, 63))


class FillerTest(unittest.TestCase):
    def test_gives_what_is_wanted_from_what_is_there(self):
        for granule in (1, 2, 4):
            for available in range(granule, 200, granule):
                for wanted in range(0, 64, granule):
                    self.check(tiling.filler(available, wanted, granule), available, wanted)

    def check(self, taps, available, wanted):
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
