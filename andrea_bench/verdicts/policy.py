"""Policy: by which rules two Runs are judged."""

import math
from typing import Literal, NamedTuple

import msgspec

from andrea_bench.errors import BadInput, unknown_name

# What two Runs may differ in, by the name that --allow-different takes.
DIFFERENCES = ("device", "timing_mode", "cache", "threads")


class Metric(NamedTuple):
    """What a gate may be asked for. better: which way. work: the field of a Record that it is a rate of, over time;
    None is the time itself."""

    better: Literal["lower", "higher"]
    work: str | None = None


METRICS = {"time": Metric("lower"), "tflops": Metric("higher", "flops"), "gb_per_s": Metric("higher", "min_bytes")}
# What a clock around one call tells apart at best; a change below it is none. (A perf_counter call costs
# 0.04 to 0.1 us.)
FLOOR_US = 0.1
# The time of a process that was measured in turns with its pair: the fifth percentile of its samples. Other work on a
# machine only ever adds time, so that low quantiles vary least (Chen and Revels 2016, Robust benchmarking in noisy
# environments, arXiv:1608.04295, who take the minimum; a percentile does not rest on one sample). On two shared CPUs
# (2026-11-30, 24 pairs, eight cells of 0.3 to 0.6 ms, 130 samples each) the 99 % interval was +-0.30 % so, +-0.29 % by
# minima, 0.32 % by deciles, 0.36 % by quartiles and 0.47 % by medians.
PAIRED_QUANTILE = 0.05

OnInconclusive = Literal["report", "fail", "pass"]
Family = Literal["holm", "benjamini_hochberg"]


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The rules of a verdict; written into the document so that it can be recomputed.

    max_slowdown: the allowance (0.05 is 5 %). confidence: over the whole family of cells. family: how it is
    shared among them. paired: whether equal blocks of both sides are pairs (one process each, taken in turn).
    quantile: which one of a process' samples is its time (0.5: the median); where it is another than the median, no
    cell whose medians are slower passes as the same.
    metric: what is judged, of METRICS. on_inconclusive: what becomes of the exit code (`report`: 3) where cells are
    undecided; those that are invalid keep 3. floor_us: smallest change that counts.
    """

    max_slowdown: float = 0.05
    confidence: float = 0.95
    family: Family = "holm"
    paired: bool = False
    quantile: float = 0.5
    metric: str = "time"
    on_inconclusive: OnInconclusive = "report"
    allow_missing: bool = False
    allow_different: list[str] = []
    floor_us: float = FLOOR_US

    def __post_init__(self) -> None:
        for name in self.allow_different:
            if name not in DIFFERENCES:
                raise unknown_name("difference for --allow-different", name, DIFFERENCES)
        if self.metric not in METRICS:
            raise BadInput(
                f"metric {self.metric!r} can't be gated: it is not known whether more of it is better; "
                f"known: {', '.join(METRICS)}"
            )

    def allowance(self, base_us: float) -> float:
        """The allowance of a cell whose base time is `base_us`: that of the policy, or the floor's share."""
        return max(self.max_slowdown, self.floor_us / base_us)


def plain_number(text: str) -> float:
    """A number of ASCII digits: float() also takes 1_0 and digits of other scripts. Raises ValueError."""
    if not text.isascii() or "_" in text:
        raise ValueError(text)
    return float(text)


def parse_percent(text: str, option: str = "--max-slowdown") -> float:
    """`5%` as 0.05. Raises BadInput; a bare number is refused with its two readings, for 5 has been meant as
    5 % by some and 0.05 by others."""
    stripped = text.strip()
    number = stripped.removesuffix("%").strip()
    try:
        value = plain_number(number)
    except ValueError:
        raise BadInput(f"{option} {text}: is not a percentage; write it as {option} 5%") from None
    if not (math.isfinite(value) and 0 <= value <= 1000):
        raise BadInput(f"{option} {text}: is not between 0% and 1000%")
    if not stripped.endswith("%"):
        raise BadInput(
            f"{option} {text}: is ambiguous; write {option} {value:g}%, or {option} {100 * value:g}% if it is a share"
        )
    return value / 100
