"""Pure functions on lists of floats: centres, intervals, paired and unpaired ratios, families of tests.

The unit of replication is the process (or time block), never the iteration: timings of one process agree
among themselves far better than two processes of the same code do.
Plain Python: a machine without scipy measures and gates as well.
"""

from andrea_bench.statistics.center import (
    drift,
    mad_outliers,
    median,
    median_confidence,
    median_interval,
    relative_half_width,
)
from andrea_bench.statistics.ratios import Ratio, paired_ratio, unpaired_ratio

__all__ = [
    "Ratio",
    "drift",
    "mad_outliers",
    "median",
    "median_confidence",
    "median_interval",
    "paired_ratio",
    "relative_half_width",
    "unpaired_ratio",
]
