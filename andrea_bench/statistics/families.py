"""Many comparisons at once: at which level each is to be made.

Both procedures return levels instead of adjusted p-values, so that a reader can make the interval of
confidence 1 - level and see the decision in it.
"""

from collections.abc import Sequence


def holm(p_values: Sequence[float], level: float = 0.05) -> list[float]:
    """Holm 1979: the chance of any false rejection in the whole family is at most `level`.

    Rejected are exactly the hypotheses whose p-value is at most the level returned for them; all others
    are left with the level of the first that was not rejected."""
    levels = [0.0] * len(p_values)
    remaining = len(p_values)
    rejecting = True
    for index in sorted(range(len(p_values)), key=p_values.__getitem__):
        levels[index] = level / remaining
        rejecting = rejecting and p_values[index] <= levels[index]
        if rejecting:
            remaining -= 1
    return levels


def benjamini_hochberg(p_values: Sequence[float], rate: float = 0.05) -> list[float]:
    """Benjamini and Hochberg 1995: the expected share of false ones among the rejections is at most `rate`.

    All have the level that belongs to the number of rejections, as intervals of selected parameters need it
    (Benjamini and Yekutieli 2005)."""
    count = len(p_values)
    if count == 0:
        return []
    rejected = 0
    for rank, p_value in enumerate(sorted(p_values), 1):
        if p_value <= rate * rank / count:
            rejected = rank
    return [rate * max(1, rejected) / count] * count
