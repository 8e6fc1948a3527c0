"""Access patterns against slices of numpy arrays."""

from __future__ import annotations

import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import numpy as np
    from simulator.errors import BadCall
    from simulator.taps import TensorAccessPattern, TensorAccessSequence, TensorTiler2D
except ModuleNotFoundError as missing:  # The simulator needs numpy and ml_dtypes, as IRON does.
    raise unittest.SkipTest(f"{missing}; install numpy and ml_dtypes") from None

MATRIX = np.arange(12 * 16).reshape(12, 16)


def passed(taps) -> list[list[int]]:
    """The elements of each pattern in order."""
    return [list(tap.access_generator()) for tap in taps]


def tiles(height: int, width: int) -> dict[tuple[int, int], np.ndarray]:
    """The matrix in tiles, by row and column."""
    return {
        (i, j): MATRIX[i * height : (i + 1) * height, j * width : (j + 1) * width] for i in range(12 // height) for j in range(16 // width)
    }


class Tilers(unittest.TestCase):
    """Each pattern is what a loop over tiles would pass."""

    def test_one_pattern_for_each_tile(self) -> None:
        parts = tiles(3, 4)
        self.assertEqual(passed(TensorTiler2D.simple_tiler((12, 16), (3, 4))), [parts[i, j].flatten().tolist() for i, j in sorted(parts)])
        self.assertEqual(
            passed(TensorTiler2D.simple_tiler((12, 16), (3, 4), tile_col_major=True)),
            [parts[i, j].T.flatten().tolist() for i, j in sorted(parts)],
        )
        self.assertEqual(
            passed(TensorTiler2D.simple_tiler((12, 16), (3, 4), iter_col_major=True)),
            [parts[i, j].flatten().tolist() for j in range(4) for i in range(4)],
        )
        self.assertEqual(passed(TensorTiler2D.simple_tiler((12, 16))), [list(range(192))])

    def test_groups_of_tiles(self) -> None:
        parts = tiles(3, 4)
        for column_major in (False, True):
            for prune in (False, True):
                taps = TensorTiler2D.group_tiler((12, 16), (3, 4), (2, 2), tile_group_col_major=column_major, prune_step=prune)
                expected = []
                for i in (0, 2):
                    for j in (0, 2):
                        group = [(i, j), (i, j + 1), (i + 1, j), (i + 1, j + 1)]
                        group = sorted(group, key=lambda at: at[::-1]) if column_major else group
                        expected.append([n for at in group for n in parts[at].flatten().tolist()])
                self.assertEqual(passed(taps), expected, (column_major, prune))

    def test_tiles_that_are_apart(self) -> None:
        parts = tiles(3, 4)
        taps = TensorTiler2D.step_tiler((12, 16), (3, 4), (1, 2), (1, 2))
        expected = [parts[i, j].flatten().tolist() + parts[i, j + 2].flatten().tolist() for i in range(4) for j in range(2)]
        self.assertEqual(passed(taps), expected)

    def test_the_last_group_may_be_smaller_when_asked_for(self) -> None:
        with self.assertRaisesRegex(BadCall, "allow_partial"):
            TensorTiler2D.group_tiler((12, 16), (3, 4), (1, 3))
        taps = TensorTiler2D.group_tiler((12, 16), (3, 4), (1, 3), allow_partial=True)
        self.assertEqual([len(list(tap.access_generator())) for tap in taps], [36, 12] * 4)
        np.testing.assert_array_equal(taps.access_count(), np.ones((12, 16)))

    def test_repetition_is_outermost(self) -> None:
        tap = TensorTiler2D.group_tiler((12, 16), (3, 4), (1, 4), pattern_repeat=5, prune_step=False)[0]
        self.assertEqual((tap.sizes, tap.strides), ([5, 4, 3, 4], [0, 4, 16, 1]))
        with self.assertRaisesRegex(BadCall, "no dimension left"):
            TensorTiler2D.group_tiler((12, 16), (3, 4), (2, 2), pattern_repeat=5)

    def test_patterns_count_and_compare(self) -> None:
        tap = TensorAccessPattern((4, 4), 4, [1, 2, 1, 4], [0, 0, 0, 1])
        np.testing.assert_array_equal(tap.access_count(), [[0] * 4, [2] * 4, [0] * 4, [0] * 4])
        np.testing.assert_array_equal(tap.access_order()[1], [4, 5, 6, 7])
        self.assertTrue(tap.compare_access_orders(TensorAccessPattern((4, 4), 4, [2, 1, 1, 4], [0, 0, 0, 1])))
        sequence = TensorAccessSequence((4, 4), 3, offset_fn=lambda step, _: 4 * step, sizes=[1, 1, 1, 4], strides=[0, 0, 0, 1])
        sequence.append(tap)
        self.assertEqual([t.offset for t in sequence], [0, 4, 8, 4])
        self.assertEqual(int(sequence.access_count().sum()), 20)
        with self.assertRaisesRegex(BadCall, "begins at element 16"):
            TensorAccessPattern((4, 4), 16, [1], [1])


if __name__ == "__main__":
    unittest.main()
