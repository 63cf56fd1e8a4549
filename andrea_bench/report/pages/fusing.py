"""Page: one fused projection against one matmul per head: bars, and where the better one changes."""

from collections.abc import Iterable
from typing import Any

from andrea_bench.problem import Problem
from andrea_bench.report import charts
from andrea_bench.report.content import Chart, Heading, Page, Part, Subject, Table
from andrea_bench.report.pages.marks import anchor, in_doubt, marked, n_of, times_chart, validity
from andrea_bench.report.rows import GroupRows, Row, ratio
from andrea_bench.report.words import interval

FUSED, PER_HEAD = "fused_qkv", "per_head_loop"
MOST_BARS = 6
MOST_MAPS = 8
MOST_SIZES = 12  # along each side of a map: of more the figures can't be read


def fusing(subject: Subject) -> Page:
    """Bars of the projection's kernels, and a map of fused over per-head time where there are several sizes."""
    title = "Fused against per head"
    parts: list[Part] = []
    for number, run in enumerate(subject.runs, 1):
        groups = run.of_suite("projection")
        if not groups:
            continue
        if len(subject.runs) > 1:
            parts.append(Heading(run.label))
        parts += _maps(groups, number)
        for at, group in enumerate(groups[:MOST_BARS], 1):
            rows = [r for r in group.rows if r.median_us is not None and r.record.op == "qkv_projection"]
            if rows:
                name = anchor("fusing", number, at)
                parts.append(
                    times_chart(name, f"Projection of Q, K and V: {group.problem.label()}, {group.device}", rows)
                )
        if len(groups) > MOST_BARS:
            parts.append(
                f"Bars of the first {MOST_BARS} of {len(groups)} Problems; the rows of all are on the last page."
            )
    if not parts:
        return Page("fusing", title, absent="no Run holds times of the suite projection")
    return Page("fusing", title, parts)


def _maps(groups: list[GroupRows], number: int) -> list[Part]:
    """A heat map over batch and seq_len for each other setting that has more than one size."""
    settings: dict[tuple[str, Problem], list[GroupRows]] = {}
    for group in groups:
        rest = group.problem.replace(batch=1, seq_len=1, kv_len=1)
        settings.setdefault((group.device, rest), []).append(group)
    several = [(key, members) for key, members in settings.items() if len(members) > 1]
    maps = [
        _map(device, rest, members, anchor("crossover", number, at))
        for at, ((device, rest), members) in enumerate(several[:MOST_MAPS], 1)
    ]
    parts: list[Part] = [drawn for drawn in maps if drawn is not None]
    if len(several) > MOST_MAPS:
        parts.append(f"Maps of the first {MOST_MAPS} of {len(several)} settings; all rows are on the last page.")
    return parts


def _map(device: str, rest: Problem, groups: list[GroupRows], name: str) -> Chart | None:
    values: list[dict[str, Any]] = []
    table = []
    counts = set()
    shown: list[Row] = []
    groups = [group for group in groups if group.row(FUSED) and group.row(PER_HEAD)]
    batches, lengths = _spread(g.problem.batch for g in groups), _spread(g.problem.seq_len for g in groups)
    drawn = [group for group in groups if group.problem.batch in batches and group.problem.seq_len in lengths]
    for group in drawn:
        fused, per_head = group.row(FUSED), group.row(PER_HEAD)
        paired = ratio(fused, per_head) if fused and per_head else None
        if not paired or not fused or not per_head:
            continue
        p = group.problem
        better = "fused" if paired.high < 1 else "per head" if paired.low > 1 else "no difference shown"
        ids = f"{fused.record.cell_id} {per_head.record.cell_id}"
        doubted = [row for row in (fused, per_head) if row.record.validity.verdict != "valid"]
        doubts = "; ".join(f"{row.record.kernel} {validity(row)}" for row in doubted) or "valid"
        values.append({
            "x": p.seq_len, "y": p.batch, "value": paired.ratio, "chosen": False,
            "text": marked(f"{paired.ratio:.2f}" + ("" if better != "no difference shown" else " ="), fused, per_head),
            "about": f"batch {p.batch}, seq_len {p.seq_len}: fused takes {interval(paired)} of the time per head, "
                     f"{paired.n} pairs; {better}; {doubts}; cell_ids {ids}",
        })  # fmt: skip
        counts.add(paired.n)
        table.append((str(p.batch), str(p.seq_len), interval(paired), str(paired.n), better, doubts, ids))
        shown += [fused, per_head]
    if len(values) < 2:
        return None
    left = len(groups) - len(drawn)
    cut = f" {left} sizes between are not drawn; the last page has all rows." if left else ""
    setting = f"d{rest.d_model} {rest.n_head}x{rest.head_dim} {rest.dtype} {rest.direction}, {device}"
    title = f"Time of one fused matmul over one per head: {setting}"
    heads = ("batch", "seq_len", "ratio", "pairs", "faster", "validity", "cell_ids")
    return Chart(
        name,
        title,
        f"{FUSED} over {PER_HEAD}, {n_of(counts)} pairs: blue (below 1) fused is faster, orange per "
        f"head, grey the same; "
        f"= where the 95 % interval holds 1. Colours are even in the logarithm.{cut}{in_doubt(shown)}",
        charts.heat(values, "seq_len (tokens)", "batch", "ratio of times", around_one=True),
        Table(f"{title}: ratios", heads, table, frozenset(heads[:4]), folded=True),
    )


def _spread(sizes: Iterable[int]) -> set[int]:
    """At most MOST_SIZES of the sizes, evenly spread over them, the least and the greatest included."""
    every = sorted(set(sizes))
    if len(every) <= MOST_SIZES:
        return set(every)
    return {every[round(at * (len(every) - 1) / (MOST_SIZES - 1))] for at in range(MOST_SIZES)}
