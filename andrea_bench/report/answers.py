"""Plain one-line answers to the suites' questions, each from paired samples of one Group, with its interval."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.problem import Problem
from andrea_bench.report.rows import GroupRows, Row, ratio, varying_fields
from andrea_bench.report.words import duration, interval, machine_name
from andrea_bench.statistics import Ratio
from andrea_bench.suite import find_suite

Environment = Mapping[str, Any]


class Sentence(msgspec.Struct, kw_only=True):
    """An answer: the text that people read, the numbers it was made of, and why its times are in doubt, if they are."""

    text: str
    suite: str
    kernel: str | None = None
    against: str | None = None
    problem: Problem | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    cell_ids: list[str] = []
    doubts: list[str] = []


def answers(groups: list[GroupRows], environment: Environment | None = None) -> list[Sentence]:
    """All answers that the Groups give, in the order of the suites' own. environment: of their Run, which names the
    machine."""
    said = [sentence for group in groups for sentence in _of_group(group, environment)]
    said += [one for find in (_alignment, _layer, _copy_crossover) for one in find(groups, environment)]
    _tell_apart(said)
    reasons = {row.record.cell_id: row.record.validity.reasons for group in groups for row in group.rows}
    for sentence in said:
        doubts = [reason for cell in sentence.cell_ids for reason in reasons.get(cell, [])]
        sentence.doubts = list(dict.fromkeys(doubts))
    return said


def _tell_apart(said: list[Sentence]) -> None:
    """Name what the beginnings of otherwise equal sentences leave out, as n_head where a sweep varies it."""
    alike: dict[tuple[str, ...], list[Sentence]] = defaultdict(list)
    for sentence in said:
        beginning = sentence.text.partition(": ")[0]
        alike[beginning, sentence.suite, sentence.kernel or "", sentence.against or ""].append(sentence)
    for sentences in alike.values():
        problems = [one.problem for one in sentences if one.problem is not None]
        fields = varying_fields(problems)
        for one in sentences if len(problems) == len(sentences) else ():
            named = "".join(f", {field} {getattr(one.problem, field)}" for field in fields)
            beginning, colon, rest = one.text.partition(": ")
            one.text = f"{beginning}{named}{colon}{rest}"


def where(problem: Problem, device: str, environment: Environment | None) -> str:
    """What every answer begins with: `on AMD EPYC (1 thread), float32, batch 1, seq_len 1024`."""
    machine = machine_name(device, environment)
    keys = "" if problem.kv_len == problem.seq_len else f", kv_len {problem.kv_len}"
    way = "" if problem.direction == "forward" else f", {problem.direction}"
    return f"on {machine}, {problem.dtype}, batch {problem.batch}, seq_len {problem.seq_len}{keys}{way}"


def _of_group(group: GroupRows, environment: Environment | None) -> Iterator[Sentence]:
    try:
        suite = find_suite(group.suite)
    except BadInput:
        return
    fields = msgspec.structs.asdict(group.problem)
    for answer in suite.answers:
        row, against = group.row(answer.kernel), group.row(answer.against)
        if row is None or against is None or _interpreted(row) or _interpreted(against):
            continue
        paired = ratio(row, against)
        if paired is None:
            continue
        text = answer.text.format(ratio=interval(paired), percent=f"{100 * paired.ratio:.0f} %", **fields)
        yield _sentence(f"{where(group.problem, group.device, environment)}: {text}", row, against, paired)


def _interpreted(row: Row) -> bool:
    """A Triton kernel on a CPU ran in the interpreter: its time says nothing about the kernel."""
    return row.record.kernel.startswith("triton_") and row.record.device.startswith("cpu")


def _sentence(text: str, row: Row, against: Row, found: "Ratio | Misalignment") -> Sentence:
    return Sentence(
        text=text,
        suite=row.record.suite,
        kernel=row.record.kernel,
        against=against.record.kernel,
        problem=row.record.problem,
        ratio=found.ratio,
        low=found.low,
        high=found.high,
        cell_ids=[row.record.cell_id, against.record.cell_id],
    )


# ---- alignment: time per useful FLOP of a size and its neighbours ------------------------------------
NEIGHBOUR = 8  # the farthest neighbour that the suite `alignment` sets beside a width


@dataclass
class Misalignment:
    """What a width costs per useful FLOP beside another, in one kernel: time ratio over FLOP ratio.

    The bounds come from the two medians' intervals, unpaired: the two are different Groups."""

    kernel: str
    base: Row
    row: Row
    base_width: int
    width: int
    cost: float
    low: float
    high: float

    @property
    def ratio(self) -> float:
        """The cost, by the name that it has in a Ratio."""
        return self.cost


def misalignments(groups: Iterable[GroupRows]) -> list[Misalignment]:
    """For each kernel of the suite `alignment`, each width beside the best aligned one at most NEIGHBOUR away (the
    multiple of the greatest power of two), where that is better aligned than itself."""
    found = []
    for rows in _neighbourhoods(groups):
        for width in sorted(rows):
            near = [other for other in rows if abs(other - width) <= NEIGHBOUR]
            base = max(near, key=lambda other: (other & -other, other))
            if base & -base > width & -width:
                found.append(_misalignment(rows[base], rows[width], base, width))
    return found


def _neighbourhoods(groups: Iterable[GroupRows]) -> Iterator[dict[int, Row]]:
    """Rows of one kernel whose Problems differ in head_dim alone (d_model aside), by head_dim."""
    kernels: dict[tuple[object, ...], dict[int, Row]] = defaultdict(dict)
    for group in groups:
        if group.suite != "alignment":
            continue
        p = group.problem
        same = (p.batch, p.seq_len, p.kv_len, p.n_head, p.n_kv_head, p.dtype, p.causal, p.direction)
        for row in group.rows:
            if row.median_us is not None and row.record.flops and not _interpreted(row):
                kernels[(row.record.op, row.record.kernel, group.device, *same)][p.head_dim] = row
    return (rows for rows in kernels.values() if len(rows) > 1)


def _misalignment(base: Row, row: Row, base_width: int, width: int) -> Misalignment:
    assert row.median_us and row.low_us and row.high_us
    assert base.median_us and base.low_us and base.high_us
    work = row.record.flops / base.record.flops
    return Misalignment(
        kernel=row.record.kernel,
        base=base,
        row=row,
        base_width=base_width,
        width=width,
        cost=row.median_us / base.median_us / work,
        low=row.low_us / base.high_us / work,
        high=row.high_us / base.low_us / work,
    )


def padding_cost(groups: Iterable[GroupRows], environment: Environment | None = None) -> Sentence | None:
    """What the next multiple of 8 beside the best aligned head_dim costs, as 72 beside 64: by the kernel that is
    the fastest at the aligned one."""
    found = [
        m for m in misalignments(groups)
        if m.row.record.op == "attention" and m.width == m.base_width + NEIGHBOUR and m.base_width % 16 == 0
    ]  # fmt: skip
    if not found:
        return None
    one = min(found, key=lambda m: m.base.median_us or 0.0)
    record = one.row.record
    work = record.flops / one.base.record.flops
    text = (
        f"{where(record.problem, record.device, environment)}: attention by {one.kernel} takes "
        f"{duration(one.row.median_us)} at head_dim {one.width} and {duration(one.base.median_us)} at "
        f"{one.base_width}, {_more(one.cost * work)} time for {_more(work)} useful work: {_more(one.cost)} per useful "
        f"FLOP ({one.cost:.2f}, {one.low:.2f} to {one.high:.2f}; unpaired)"
    )
    return _sentence(text, one.row, one.base, one)


def _more(ratio: float) -> str:
    return f"{100 * abs(ratio - 1):.1f} % {'more' if ratio >= 1 else 'less'}"


def _alignment(groups: list[GroupRows], environment: Environment | None) -> Iterator[Sentence]:
    """What 72 costs beside 64 or the like; and of each kernel the neighbour that costs the most, where it costs more
    than the noise."""
    padding = padding_cost(groups, environment)
    if padding:
        yield padding
    dearest: dict[tuple[str, int], Misalignment] = {}
    for one in misalignments(groups):
        key = (one.kernel, one.base_width)
        if one.low > 1 and (key not in dearest or one.cost > dearest[key].cost):
            dearest[key] = one
    for one in dearest.values():
        record = one.row.record
        name = "head_dim" if record.op == "attention" else "a width of"
        change = f"{100 * (one.cost - 1):.0f} % more"
        text = (
            f"{where(record.problem, record.device, environment)}, {record.kernel}: {name} {one.width} takes "
            f"{change} time per useful FLOP than {one.base_width} "
            f"({one.cost:.2f}, {one.low:.2f} to {one.high:.2f}; unpaired)"
        )
        sentence = _sentence(text, one.row, one.base, one)
        if padding is None or sentence.cell_ids != padding.cell_ids:
            yield sentence


# ---- layer: the whole beside the sum of its stages ---------------------------------------------------
def _wholes(group: GroupRows) -> Iterator[tuple[Row, list[Row]]]:
    """Each kernel of the Group that is the whole of others, with the rows of its stages, where all were timed."""
    try:
        wholes = find_suite(group.suite).wholes
    except BadInput:
        return
    for kernel, stages in wholes:
        whole, parts = group.row(kernel), [group.row(name) for _, name in stages]
        timed = [part for part in parts if part is not None]
        if whole is not None and len(timed) == len(parts) and not _interpreted(whole):
            yield whole, timed


def _layer(groups: list[GroupRows], environment: Environment | None) -> Iterator[Sentence]:
    for group in groups:
        p = group.problem
        for whole, stages in _wholes(group):
            total = sum(row.median_us or 0.0 for row in stages)
            assert whole.median_us is not None
            over = whole.median_us / total - 1
            tokens = p.batch * p.seq_len / (whole.median_us * p.n_layer) * 1e6
            yield Sentence(
                text=f"{where(p, group.device, environment)}: the measured layer ({whole.record.kernel}) takes "
                f"{duration(whole.median_us)}, {100 * abs(over):.1f} % {'more' if over >= 0 else 'less'} than the sum "
                f"of its stages ({duration(total)}); {p.n_layer} such layers pass {tokens:.0f} tokens per second",
                suite=group.suite,
                kernel=whole.record.kernel,
                problem=p,
                ratio=whole.median_us / total,
                cell_ids=[row.record.cell_id for row in [whole, *stages]],
            )


# ---- layout: from which seq_len a contiguous copy pays -----------------------------------------------
COPY_PAIRS = (
    ("attention_copy_then_contiguous", "attention_strided"),
    ("qk_copy_then_contiguous", "qk_strided"),
)


def _copy_crossover(groups: list[GroupRows], environment: Environment | None) -> Iterator[Sentence]:
    for copying, strided in COPY_PAIRS:
        series: dict[tuple[str, Problem], list[tuple[int, Ratio, Row, Row]]] = defaultdict(list)
        for group in groups:
            row, against = group.row(copying), group.row(strided)
            paired = ratio(row, against) if row and against else None
            if group.suite == "layout" and row and against and paired:
                rest = group.problem.replace(seq_len=1, kv_len=1)
                series[group.device, rest].append((group.problem.seq_len, paired, row, against))
        for points in series.values():
            yield _crossover(sorted(points, key=lambda point: point[0]), environment)


def _crossover(points: list[tuple[int, Ratio, Row, Row]], environment: Environment | None) -> Sentence:
    """From which seq_len on, up to the largest tried, copying the heads first is the faster way."""
    paying = len(points)
    while paying > 0 and points[paying - 1][1].high < 1:
        paying -= 1
    tried = ", ".join(str(seq_len) for seq_len, *_ in points)
    what = "Q K^T" if points[0][2].record.kernel.startswith("qk") else "attention"
    seq_len, paired, row, against = points[min(paying, len(points) - 1)]
    if paying < len(points):
        text = f"for {what}, copying the heads contiguous first pays from seq_len {seq_len} on"
    else:
        text = f"for {what}, copying the heads contiguous first does not pay at the largest seq_len"
    text += f" (tried: {tried}); at {seq_len} it takes {interval(paired)} of the strided time"
    sentence = _sentence("", row, against, paired)
    problem = row.record.problem
    machine = machine_name(row.record.device, environment)
    sentence.text = f"on {machine}, {problem.dtype}, batch {problem.batch}: {text}"
    return sentence
