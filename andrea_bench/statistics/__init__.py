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
    quantile,
    relative_half_width,
)
from andrea_bench.statistics.families import benjamini_hochberg, holm
from andrea_bench.statistics.history import change_from_best
from andrea_bench.statistics.power import least_units, smallest_detectable_change, units_needed
from andrea_bench.statistics.ratios import (
    Ratio,
    Shift,
    paired_ratio,
    paired_shift,
    unpaired_ratio,
    unpaired_shift,
)

__all__ = [
    "Ratio",
    "Shift",
    "benjamini_hochberg",
    "change_from_best",
    "drift",
    "holm",
    "least_units",
    "mad_outliers",
    "median",
    "median_confidence",
    "median_interval",
    "paired_ratio",
    "paired_shift",
    "quantile",
    "relative_half_width",
    "smallest_detectable_change",
    "units_needed",
    "unpaired_ratio",
    "unpaired_shift",
]
