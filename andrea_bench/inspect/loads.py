"""Whether the main loop of one kernel reads memory by narrower loads than that of another.

The rule: loads are narrower where, for some width, a larger share of the loop's bytes comes by loads of at most so
many bytes. A mean would hide a narrow part beside a wide one (16 of 144 columns by 2-byte loads instead of 8-byte
ones leave it at 96 %), the narrowest width alone would not say how much comes by it. Asynchronous copies count as
loads. Copies of the tensor memory accelerator (TMA) have no width a thread: they count as wider than any load.
"""

from collections import Counter
from typing import NamedTuple

from andrea_bench.inspect.facts import Facts

# A share that grows by less is the odd load beside a tile (statistics of rows: 2 %). The narrowest part that a
# head_dim is split into is more (16 of 208 columns: 8 %).
SHARE_TOLERANCE = 0.05


class Shift(NamedTuple):
    """Shares of the bytes, from 0 to 1, that come by loads of at most `width` bytes: once and then."""

    width: int
    before: float
    after: float


def narrower(before: Facts, after: Facts) -> Shift | None:
    """The narrowest width by which, or below which, a larger share comes afterwards; None where there is none."""
    was, now = moved_bytes(before), moved_bytes(after)
    if not was or not now:
        return None
    whole = now.total()
    if (after.tma_copies or 0) > (before.tma_copies or 0):
        whole = max(whole, was.total())  # what TMA copies took over still belongs to the whole
    for width in sorted(now):
        shift = Shift(width, _up_to(width, was) / was.total(), _up_to(width, now) / whole)
        if shift.after - shift.before > SHARE_TOLERANCE:
            return shift
    return None


def in_place_of_tma(before: Facts, after: Facts) -> bool:
    """Whether loads afterwards do what TMA copies did: there were no loads beside these, there are no such copies
    any more, or there are fewer and loads move more bytes."""
    was, now = moved_bytes(before).total(), moved_bytes(after).total()
    copies, copies_now = before.tma_copies or 0, after.tma_copies or 0
    return bool(copies and now and (not was or not copies_now or (copies_now < copies and now > was)))


def moved_bytes(facts: Facts) -> Counter[int]:
    """Bytes that a thread loads in one pass of the main loop, as the code stands, by width of the load in bytes."""
    moved: Counter[int] = Counter()
    for counts in (facts.global_load_bytes or {}, facts.async_copy_bytes or {}):
        for width, count in counts.items():
            moved[int(width)] += int(width) * count
    return moved


def _up_to(width: int, moved: Counter[int]) -> int:
    return sum(part for each, part in moved.items() if each <= width)


def by_what(facts: Facts) -> str:
    """What the main loop reads memory by: "4 TMA copies and 2-byte loads"."""
    copies = f"{facts.tma_copies} TMA copies" if facts.tma_copies else ""
    widths = " and ".join(f"{width}-byte" for width in sorted(moved_bytes(facts)))
    return " and ".join(part for part in (copies, f"{widths} loads" if widths else "") if part) or "no loads"
