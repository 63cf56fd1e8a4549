"""Figures as people read them: times with their unit, ratios with their interval, rates; and the names of machines."""

import re
from collections.abc import Mapping
from typing import Any

from andrea_bench.statistics import Ratio

ABSENT = "-"


def duration(us: float | None) -> str:
    """Microseconds with three significant digits and the unit that fits."""
    if us is None:
        return ABSENT
    for limit, divisor, unit in ((1e3, 1.0, "us"), (1e6, 1e3, "ms"), (float("inf"), 1e6, "s")):
        if us < limit:
            return f"{significant(us / divisor)} {unit}"
    return ABSENT


def tracked(value: float | None, unit: str) -> str:
    """A value of asv's: `1.86 ms` of seconds, else `3,145,728 bytes`."""
    if value is None:
        return ABSENT
    if unit == "seconds":
        return duration(value * 1e6)
    return f"{value:,.0f} {unit}" if value.is_integer() else f"{value:.4g} {unit}"


def changed_by(old: float, new: float) -> str:
    """`+30 %`; in words where the old value is 0."""
    return f"{100 * (new / old - 1):+.3g} %" if old else "from 0"


def significant(value: float, digits: int = 3) -> str:
    """`value` to so many significant digits, without an exponent where it has up to six places."""
    if value == 0:
        return "0"
    text = f"{value:#.{digits}g}".removesuffix(".")
    return f"{float(text):.0f}" if "e+" in text and abs(value) < 1e6 else text


def counted(n: int, what: str) -> str:
    """`1 row`, `3 rows`, `1,000 entries`."""
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{n:,} {what if n == 1 else several}"


def percent(share: float | None) -> str:
    return ABSENT if share is None else f"{100 * share:.1f} %"


def interval(ratio: Ratio | None) -> str:
    """A ratio as in `0.62 (0.60 to 0.64)`."""
    if ratio is None:
        return ABSENT
    return f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})"


def rate(tflops: float | None) -> str:
    """TFLOP/s, or GFLOP/s below a tenth of one."""
    if tflops is None:
        return ABSENT
    return f"{significant(tflops)} TFLOP/s" if tflops >= 0.1 else f"{significant(tflops * 1e3)} GFLOP/s"


def machine_name(device: str, environment: Mapping[str, Any] | None = None) -> str:
    """What a Record's device is called: `AMD EPYC (1 thread)`, `NVIDIA H200`. environment: that of the Run; what it
    does not name is `this CPU` or `this GPU (cuda)`."""
    known = environment or {}
    place, _, threads = device.partition(":threads=")
    kind = place.partition(":")[0]
    if kind == "cuda":
        gpu = known.get("gpu") or {}
        name = gpu.get("name") if known.get("device") == place else None  # it is the GPU of that device alone
        return str(name) if name else f"this GPU ({device})"
    if kind != "cpu":
        return device
    model = (known.get("cpu") or {}).get("model")
    if not model and not threads:
        return "this CPU"
    return f"{model or 'this CPU'} ({'1 thread' if threads in ('', '1') else f'{threads} threads'})"


# Words with a digit, in regular expressions of Python's and of polars'.
FIGURE = r"\S*\d\S*"


def kind_of(reason: str) -> str:
    """A reason without its figures, so that those of one kind count together: `others kept N of N CPUs busy`."""
    return re.sub(FIGURE, "N", reason)
