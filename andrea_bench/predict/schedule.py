"""When the last block ends: blocks of equal and of unequal length handed to SMs one after the other."""

import heapq
from collections.abc import Sequence
from math import ceil

# Blocks that are handed out one by one; what comes before them is spread evenly, as many blocks are.
SIMULATED_BLOCKS = 8192


def makespan(durations: Sequence[float], copies: int, slots: int) -> float:
    """Time until the last block ends when each free slot takes the next block.

    durations: of the blocks of one (batch, head) in launch order; copies: how often that sequence is
    launched, one after the other. In the unit of durations.
    """
    if min(durations) == max(durations):
        return ceil(len(durations) * copies / slots) * durations[0]
    tail = min(copies, ceil(SIMULATED_BLOCKS / len(durations)))
    even = sum(durations) * (copies - tail) / slots
    free = [0.0] * min(slots, len(durations) * tail)
    for _ in range(tail):
        for duration in durations:
            heapq.heapreplace(free, free[0] + duration)
    return even + max(free)
