"""Page: one width split into heads in several ways: n_head x head_dim."""

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from andrea_bench.axes import AxisRequest, expand, parse_axis, read_config
from andrea_bench.errors import BadInput
from andrea_bench.models import DEFAULT_MODEL, find_model
from andrea_bench.problem import Problem
from andrea_bench.report import charts
from andrea_bench.report.content import Chart, MeasuredRun, Page, Part, Subject, Table
from andrea_bench.report.pages.marks import (
    INTERVALS,
    about,
    anchor,
    by_run,
    fastest,
    in_doubt,
    marked,
    samples,
    validity,
)
from andrea_bench.report.rows import Row
from andrea_bench.report.words import ABSENT, duration, percent, rate, significant

SUITES = ("attention", "layer", "projection", "output", "decode")
MOST_MAPS = 8
SPLIT = ("d_model", "n_head", "head_dim")
OPTIONS = ("--model", "--config", "--axis")
HEADS = ("n_head", "head_dim", "kernel", "time", "rate", "of the ceiling", "chosen", "validity", "cell_id")


def splits(subject: Subject) -> Page:
    """A heat map for each suite, op and setting in which n_head or head_dim takes several values."""
    title = "n_head x head_dim"
    parts = by_run(subject, _maps)
    if not parts:
        return Page("splits", title, absent="no Run holds more than one split of a width (`sweep --iso d_model=768`)")
    return Page("splits", title, parts)


def _maps(run: MeasuredRun, number: int) -> list[Part]:
    settings: dict[tuple[str, str, str, Problem], dict[tuple[int, int], Row]] = {}
    for (setting, split), row in fastest(_placed(run)).items():
        settings.setdefault(setting, {})[split] = row
    several = [(key, cells) for key, cells in settings.items() if len(cells) > 1]
    parts: list[Part] = [
        _map(run, key, cells, anchor("splits", number, at)) for at, (key, cells) in enumerate(several[:MOST_MAPS], 1)
    ]
    if len(several) > MOST_MAPS:
        parts.append(f"Maps of the first {MOST_MAPS} of {len(several)} settings; all rows are on the last page.")
    return parts


def _placed(run: MeasuredRun) -> Iterator[tuple[tuple[tuple[str, str, str, Problem], tuple[int, int]], Row]]:
    """Each row under its setting (suite, op, device and all of its Problem but the split) and its split."""
    for group in run.of_suite(*SUITES):
        p = group.problem
        rest = p.replace(n_head=1, n_kv_head=1, head_dim=1, d_model=p.n_head * p.head_dim)
        for row in group.rows:
            yield ((group.suite, row.record.op, group.device, rest), (p.n_head, p.head_dim)), row


def _map(run: MeasuredRun, key: tuple[str, str, str, Problem], cells: dict[tuple[int, int], Row], name: str) -> Chart:
    suite, op, device, one = key
    chosen = _chosen(run)
    known = next((c for c in run.ceilings if one.dtype in c.tflops), None)
    ceiling = known.tflops[one.dtype] if known else None
    values: list[dict[str, Any]] = []
    table = []
    for (n_head, head_dim), row in sorted(cells.items()):
        share = percent(row.tflops / ceiling) if ceiling and row.tflops else ABSENT
        mark = (n_head, head_dim) == chosen
        values.append({
            "x": head_dim, "y": n_head, "value": row.tflops, "chosen": mark, "about": about(row),
            "text": marked(duration(row.median_us), row) + (f"\n{share}" if share != ABSENT else ""),
        })  # fmt: skip
        table.append((str(n_head), str(head_dim), row.record.kernel, duration(row.median_us), rate(row.tflops),
                      share, "chosen" if mark else "", validity(row), row.record.cell_id))  # fmt: skip
    title = (
        f"{op} ({suite}), width {one.d_model}: batch {one.batch}, seq_len {one.seq_len}, {one.dtype}, "
        f"{one.direction}, {device}"
    )
    top = "no ceiling is known here"
    if known and ceiling:
        top = f"percent of the ceiling, {significant(ceiling)} TFLOP/s by {known.source}"
    framed = " A frame marks the split that the sweep was asked for." if any(v["chosen"] for v in values) else ""
    return Chart(
        name,
        title,
        f"The fastest kernel of each split: its median time, coloured by useful TFLOP/s (lighter is better); {top}; "
        f"{samples(list(cells.values()))}, {INTERVALS}.{framed}{in_doubt(cells.values())}",
        charts.heat(values, "head_dim", "n_head", "TFLOP/s", around_one=False),
        Table(
            f"{title}: figures", HEADS, table, frozenset({"n_head", "head_dim", "time", "rate", "of the ceiling"}), True
        ),
    )


def _chosen(run: MeasuredRun) -> tuple[int, int] | None:
    """n_head and head_dim that the sweep was asked for: of the model that its arguments name, else the one split that
    their axes name, else of the default model. None where that can't be known: where an axis has several values, or a
    file that is named isn't here."""
    arguments = run.head.arguments
    try:
        model, axes = _asked(arguments)
        split = {name: axes[name] for name in SPLIT if name in axes}
        if not arguments or (model is None and any(len(values) != 1 for values in split.values())):
            return None
        named = find_model(model or DEFAULT_MODEL).problem()
        problem = named if model or not split else expand(AxisRequest(axes=split)).problems[0]
    except (BadInput, OSError):
        return None
    return problem.n_head, problem.head_dim


def _asked(arguments: Sequence[str]) -> tuple[str | None, dict[str, list[Any]]]:
    """The model and the axes that a command line names; what its --config file names stands below the rest."""
    model: str | None = None
    axes: dict[str, list[Any]] = {}
    given = list(_options(arguments))
    for path in [value for name, value in given if name == "--config"][-1:]:
        content = read_config(Path(path))
        model, axes = content.get("model"), dict(content["axes"])
    for name, value in given:
        if name == "--model":
            model = value
        elif name == "--axis":
            axes.update([parse_axis(value)])
    return model, axes


def _options(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Those of OPTIONS that are given, with their values, in every spelling: `-a X`, `-aX`, `--axis X`, `--axis=X`."""
    for argument, after in itertools.zip_longest(arguments, arguments[1:], fillvalue=""):
        name, equals, value = argument.partition("=")
        if argument in OPTIONS or argument == "-a":
            yield "--axis" if argument == "-a" else argument, after
        elif equals and name in OPTIONS:
            yield name, value
        elif argument.startswith("-a"):
            yield "--axis", argument.removeprefix("-a")
