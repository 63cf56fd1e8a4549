"""Order statistics of all pairwise sums of two sorted lists, without making the sums.

Hodges-Lehmann estimates and their rank intervals are order statistics of such sums; a thousand values have
half a million of them.
"""

from bisect import bisect_right
from collections.abc import Sequence

ENOUGH = 2000  # so few candidates are sorted directly


class PairSums:
    """The sums rows[i] + columns[j], of all pairs or, where `upper`, of those with j >= i.

    rows, columns: sorted ascending. With `upper` they are one and the same list."""

    def __init__(self, rows: Sequence[float], columns: Sequence[float], *, upper: bool = False) -> None:
        self._rows, self._columns, self._upper = rows, columns, upper
        n = len(rows)
        self.count = n * (n + 1) // 2 if upper else n * len(columns)

    def smallest(self, rank: int) -> float:
        """The rank-th smallest sum, 1 being the least."""
        if not 1 <= rank <= self.count:
            raise ValueError(f"rank {rank} of {self.count} sums")
        low, high = self._rows[0] + self._columns[0], self._rows[-1] + self._columns[-1]
        below, upto = 0, self.count
        while upto - below > ENOUGH:
            middle = low + (high - low) / 2
            if not low < middle < high:
                break  # neighbouring floats: what is left are equal sums
            reached = self._up_to(middle)
            if reached >= rank:
                high, upto = middle, reached
            else:
                low, below = middle, reached
        if upto - below > ENOUGH:
            return high if rank > self._up_to(low) else low
        return self._between(low, high, first=below == 0)[rank - below - 1]

    def median(self) -> float:
        """The median of all sums."""
        upper = self.smallest(self.count // 2 + 1)
        return upper if self.count % 2 else (self.smallest(self.count // 2) + upper) / 2

    def _up_to(self, limit: float) -> int:
        columns, total = self._columns, 0
        for i, row in enumerate(self._rows):
            start = i if self._upper else 0
            total += bisect_right(columns, limit - row, start) - start
        return total

    def _between(self, low: float, high: float, *, first: bool) -> list[float]:
        """The sums above `low` (from it on, where `first`) and up to `high`, sorted."""
        columns, found = self._columns, []
        for i, row in enumerate(self._rows):
            start = i if self._upper else 0
            lower = start if first else bisect_right(columns, low - row, start)
            upper = len(columns) if high - row >= columns[-1] else bisect_right(columns, high - row, start)
            found += [row + column for column in columns[lower:upper]]
        found.sort()
        return found
