"""The model against measured figures: `python -m andrea_bench.predict.validation` writes docs/validation.md.

The sweeps of matrix products are read from the folder that ANDREA_GEMM_DATA names; without it the page says
that they were not looked at.
"""

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from andrea_bench.predict.efficiency import Efficiency, efficiencies
from andrea_bench.predict.fit import Point, fit, leave_one_out, mean_error_percent, point
from andrea_bench.predict.published import (
    LEAST_SEQ_LEN,
    SWEEP_SOURCE,
    Measured,
    by_head_dim,
    gemm_sweeps,
    is_target,
    published,
)

GEMM_DATA = "ANDREA_GEMM_DATA"
PAGE = Path("docs/validation.md")
# Where the time of a product that grows by 8 columns rises by more than this, a new column of tiles began.
STEP = 0.2

Row = tuple[str, ...]


def main(arguments: list[str]) -> int:
    """Write the page, to docs/validation.md or the path given."""
    page = Path(arguments[0]) if arguments else PAGE
    folder = os.environ.get(GEMM_DATA)
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text("\n".join(sections(Path(folder) if folder else None).values()), encoding="utf-8")
    print(f"wrote {page}", file=sys.stderr)
    return 0


def sections(sweeps: Path | None) -> dict[str, str]:
    """The page, by section. sweeps: the folder of the matrix-product sweeps."""
    figures = published()
    measured = gemm_sweeps(sweeps) if sweeps else []
    return {
        "head": _HEAD,
        "attention": "## Attention\n\n" + _series(one for one in figures if one.head_dim is not None),
        "by_head_dim": _by_head_dim(by_head_dim()),
        "matmul": "## Matrix products, single figures\n\n" + _series(one for one in figures if one.head_dim is None),
        "sweeps": _sweeps(measured),
        "left_out": _left_out(fit_points([*figures, *measured])),
        "efficiencies": _efficiencies(efficiencies().values()),
        "sources": _sources([*figures, *measured]),
    }


def fit_points(measured: Iterable[Measured]) -> list[Point]:
    """The points that efficiencies were fitted on."""
    made = (
        point(one.predicted, one.measured_us, one.head_dim) for one in measured if one.role == "fit" and is_target(one)
    )
    return [one for one in made if one is not None]


def errors_percent(measured: Iterable[Measured]) -> dict[tuple[str, str], float]:
    """Mean absolute percentage error of the sizes that the model is meant for, by (GPU, series)."""
    return {key: _error(group) for key, group in _groups(measured).items()}


def steps(measured: Iterable[Measured], *, predicted: bool) -> list[int]:
    """The sizes at which the time of a sweep rises by a step, as measured or as predicted."""
    series = sorted(measured, key=lambda one: one.size)
    times = [one.predicted.time_us if predicted else one.measured_us for one in series]
    return [
        after.size
        for after, here, before in zip(series[1:], times[1:], times[:-1], strict=True)
        if here > (1 + STEP) * before
    ]


def refitted(measured: Iterable[Measured]) -> dict[tuple[str, str, str], Efficiency]:
    """The efficiencies that the figures give now; efficiencies.toml holds the same."""
    return dict(fit(fit_points(measured), "published figures"))


def _groups(measured: Iterable[Measured]) -> dict[tuple[str, str], list[Measured]]:
    groups: dict[tuple[str, str], list[Measured]] = {}
    for one in measured:
        if is_target(one):
            groups.setdefault((one.predicted.gpu, f"{one.series}|{one.source}"), []).append(one)
    return groups


def _error(group: list[Measured]) -> float:
    return mean_error_percent((one.predicted.time_us, one.measured_us) for one in group)


def _inside(group: list[Measured]) -> str:
    inside = sum(one.predicted.low_us <= one.measured_us <= one.predicted.high_us for one in group)
    return f"{inside} of {len(group)}"


def _series(measured: Iterable[Measured]) -> str:
    figures = list(measured)
    numbers = _source_numbers(published())
    rows = []
    for (gpu, _), group in _groups(figures).items():
        first = group[0]
        sizes = str(first.size) if len(group) == 1 else f"{group[0].size} to {group[-1].size}"
        times = [f"{_rate(one, one.measured_us):.0f}" for one in group]
        ours = [f"{_rate(one, one.predicted.time_us):.0f}" for one in group]
        rows.append(
            (
                first.series,
                gpu,
                sizes,
                first.role,
                " ".join(times),
                " ".join(ours),
                f"{_error(group):.1f}",
                _inside(group),
                f"[{numbers[first.source]}]",
            )
        )
    titles = ("series", "GPU", "sizes", "role", "measured TFLOP/s", "predicted", "error %", "in interval", "source")
    return _table(titles, rows)


def _by_head_dim(measured: Iterable[Measured]) -> str:
    """Series of many head_dims at one length."""
    groups = _groups(measured)
    rows = [
        (
            group[0].series,
            " ".join(str(one.head_dim) for one in group),
            " ".join(f"{_rate(one, one.measured_us):.0f}" for one in group),
            " ".join(f"{_rate(one, one.predicted.time_us):.0f}" for one in group),
            f"{_error(group):.1f}",
            _inside(group),
        )
        for group in groups.values()
    ]
    titles = ("series", "head_dim", "measured TFLOP/s", "predicted", "error %", "in interval")
    sources = dict.fromkeys(one.source for group in groups.values() for one in group)
    return (
        f"## Attention by head_dim, measured afterwards\n\n{'; '.join(sources)}. All of it `check`: measured when the "
        "model of flash and cuDNN stood (that of the efficient one is read off it); figures of head_dim 64 and 128 "
        "alone were in its fits.\n\n" + _table(titles, rows)
    )


def _rate(one: Measured, time_us: float) -> float:
    """TFLOP/s at that time; the prediction knows the FLOPs."""
    return one.predicted.tflops * one.predicted.time_us / time_us


def _sweeps(measured: list[Measured]) -> str:
    title = "## Matrix products, sweeps\n\n"
    if not measured:
        return f"{title}Not looked at: {GEMM_DATA} names no folder with the sweeps.\n"
    rows = []
    for (gpu, label), group in _groups(measured).items():
        series = label.partition("|")[0]
        seen, expected = (steps(group, predicted=which) for which in (False, True))
        columns = "" if series == "m_sweep" else ", ".join(map(str, seen)) or "none"
        ours = "" if series == "m_sweep" else ", ".join(map(str, expected)) or "none"
        rows.append((series, gpu, str(len(group)), "fit", columns, ours, f"{_error(group):.1f}", _inside(group)))
    titles = ("sweep", "GPU", "points", "role", "steps measured at n", "predicted", "error %", "in interval")
    return (
        f"{title}{SWEEP_SOURCE}: `m_sweep` from 1024 up (m = n, k = 4096) and `ksweep_low` from n = 256 up "
        f"(m = 27648, k = 4096), the slowest of 200 runs by a host timer. A step is a rise of more than "
        f"{STEP:.0%} in time from one size to the next.\n\n" + _table(titles, rows)
    )


def _left_out(points: list[Point]) -> str:
    rows = [
        (one.family, one.direction, one.left_out, str(one.points), f"{one.error_percent:.1f}")
        for one in leave_one_out(points)
    ]
    return (
        "## Left out\n\nEach GPU predicted from the other GPUs of its family, or, where one GPU alone was "
        "measured, each head_dim from the others.\n\n"
        + _table(("family", "direction", "left out", "points", "error %"), rows)
    )


def _efficiencies(table: Iterable[Efficiency]) -> str:
    rows = [
        (
            one.family,
            one.direction,
            one.compute_capability,
            f"{one.value:.2f}",
            f"{one.low:.2f} to {one.high:.2f}",
            "fitted" if one.fitted else "prior",
            one.source,
        )
        for one in table
    ]
    return "## Efficiencies\n\n" + _table(
        ("family", "direction", "compute capability", "share of the bound", "range", "how", "source"), rows
    )


def _source_numbers(measured: Iterable[Measured]) -> dict[str, int]:
    return {source: i for i, source in enumerate(dict.fromkeys(one.source for one in measured), 1)}


def _sources(measured: Iterable[Measured]) -> str:
    lines = [f"{i}. {source}" for source, i in _source_numbers(measured).items()]
    return "## Sources\n\n" + "\n".join(lines) + "\n"


def _table(titles: Row, rows: Iterable[Row]) -> str:
    lines = [titles, tuple("---" for _ in titles), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


_HEAD = f"""# How far the model is off

Written by `python -m andrea_bench.predict.validation` (with `{GEMM_DATA}` naming the folder of the
matrix-product sweeps). Every time is a bound over one efficiency per architecture and kernel family; no number
belongs to a single point. `fit`: the efficiency was fitted on these points; `check`: it was not. Error: mean
absolute percentage error of the predicted time. In interval: measured times between the low and the high end of
the prediction. Attention from seq_len {LEAST_SEQ_LEN} up, batch x seq_len 16384, n_head x head_dim 2048, float16.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
