"""A series over commits: is the latest value a regression against the best level it once had?"""

from collections.abc import Sequence
from itertools import pairwise


def change_from_best(values: Sequence[float]) -> float | None:
    """Change of the latest value from the best earlier level (0.5 is 50 % slower; 0.0 is no change).

    A level is what two neighbouring values both reach, so that one lucky value sets no bar; the latest value
    counts alone. A slowdown that has half recovered is thus still one. None for fewer than three values, or
    where the best level is not positive."""
    earlier = values[:-1]
    if len(earlier) < 2:
        return None
    best = min(max(pair) for pair in pairwise(earlier))
    return values[-1] / best - 1 if best > 0 else None
