"""Order statistics of all pairwise sums of two sorted lists, without making the sums where they are many.

Hodges-Lehmann estimates and their rank intervals are order statistics of such sums; a thousand values have
half a million of them.
"""

from bisect import bisect_right
from collections.abc import Sequence

FEW = 2000  # so many sums are made and sorted


class PairSums:
    """The sums rows[i] + columns[j], of all pairs or, where `upper`, of those with j >= i.

    rows, columns: sorted ascending. With `upper` they are one and the same list."""

    def __init__(self, rows: Sequence[float], columns: Sequence[float], *, upper: bool = False) -> None:
        self._rows, self._columns, self._upper = rows, columns, upper
        n = len(rows)
        self.count = n * (n + 1) // 2 if upper else n * len(columns)
        self._all: list[float] | None = None
        if self.count <= FEW:
            self._all = sorted(r + c for i, r in enumerate(rows) for c in (columns[i:] if upper else columns))

    def smallest(self, rank: int) -> float:
        """The rank-th smallest sum, 1 being the least."""
        if not 1 <= rank <= self.count:
            raise ValueError(f"rank {rank} of {self.count} sums")
        if self._all is not None:
            return self._all[rank - 1]
        low, high = self._rows[0] + self._columns[0], self._rows[-1] + self._columns[-1]
        below, upto = 0, self.count
        while upto - below > FEW:
            middle = low + (high - low) / 2
            if not low < middle < high:
                # Neighbouring floats: the sums left are equal, to one or the other.
                return low if rank <= self.up_to(low) else high
            reached = self.up_to(middle)
            if reached >= rank:
                high, upto = middle, reached
            else:
                low, below = middle, reached
        return self._between(low, high, with_low=below == 0)[rank - below - 1]

    def median(self) -> float:
        """The median of all sums."""
        upper = self.smallest(self.count // 2 + 1)
        return upper if self.count % 2 else (self.smallest(self.count // 2) + upper) / 2

    def up_to(self, limit: float) -> int:
        """How many sums are at most `limit`."""
        if self._all is not None:
            return bisect_right(self._all, limit)
        columns, total = self._columns, 0
        for i, row in enumerate(self._rows):
            start = i if self._upper else 0
            total += bisect_right(columns, limit - row, start) - start
        return total

    def _between(self, low: float, high: float, *, with_low: bool) -> list[float]:
        """The sums above `low` (from it on, where `with_low`) and up to `high`, sorted."""
        columns, found = self._columns, []
        for i, row in enumerate(self._rows):
            start = i if self._upper else 0
            lower = start if with_low else bisect_right(columns, low - row, start)
            # At the very top rounding of `high - row` must not lose the greatest sum.
            upper = len(columns) if row + columns[-1] <= high else bisect_right(columns, high - row, start)
            found += [row + column for column in columns[lower:upper]]
        found.sort()
        return found
