"""A Run on the terminal: one table a Group, what could not run, the answers, and what they rest on. Fits 80 columns."""

import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.console import Console
from rich.table import Table
from rich.text import Text

from andrea_bench.record import TIMED, RunHead
from andrea_bench.report.answers import Sentence, misalignments
from andrea_bench.report.counters import counters_line
from andrea_bench.report.rows import GroupRows, Row
from andrea_bench.report.words import ABSENT, counted, duration, interval, kind_of, machine_name, rate
from andrea_bench.suite import find_suite

MOST_ANSWERS = 40
NARROW = 64  # columns; below it the tables leave spread and rate away
STATUS_STYLE = {"ok": "", "throttled": "yellow", "wrong": "bold red", "error": "red", "timeout": "red"}
VERDICTS = ("valid", "suspect", "invalid")
BREAKS = str.maketrans(dict.fromkeys("\t\n\v\f\r", " "))


def one_line(text: str, style: str = "") -> Text:
    """Text of a Run's, in which a line end must not begin a line of its own."""
    return Text(text.translate(BREAKS), style)


def print_run(console: Console, groups: Sequence[GroupRows], sentences: Sequence[Sentence]) -> None:
    """All that a Run says on the terminal: its tables, then its answers."""
    print_groups(console, groups)
    print_answers(console, sentences)
    console.print()


def print_groups(console: Console, groups: Sequence[GroupRows]) -> None:
    """The tables of all Groups by suite; below each suite, what its kernels could not do and why."""
    for suite, of_suite in itertools.groupby(groups, key=lambda group: group.suite):
        members = list(of_suite)
        console.print()
        console.print(_suite_title(suite))
        for group in members:
            if any(row.median_us is not None for row in group.rows):
                console.print(_table(group, narrow=console.width < NARROW))
                if "misaligned" in group.problem.alignment():
                    console.print(Text(f"  {group.problem.alignment()}", style="dim"))
                _print_doubts(console, group)
                _print_launches(console, group)
                _print_counters(console, group)
        _print_reasons(console, members)
        if suite == "alignment":
            _print_alignment(console, members)


def _suite_title(name: str) -> Text:
    from andrea_bench.errors import BadInput

    try:
        return Text.assemble((name, "bold"), f"  {find_suite(name).question}")
    except BadInput:
        return one_line(name, "bold")


def _table(group: GroupRows, *, narrow: bool = False) -> Table:
    table = Table(title=one_line(f"{group.problem.label()} on {group.device}"), title_justify="left", box=None)
    table.add_column("kernel", overflow="fold", min_width=16)
    for head in ("time", "to baseline") if narrow else ("time", "+-", "to baseline", "rate"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in group.rows:
        if row.median_us is not None:
            name, time, spread, ratio, rate_text = _cells(row)
            table.add_row(name, time, ratio) if narrow else table.add_row(name, time, spread, ratio, rate_text)
    return table


def _cells(row: Row) -> list[Text]:
    spread = f"{100 * row.half_width:.1f} %" if row.half_width is not None else ABSENT
    mark = "" if row.record.validity.verdict == "valid" else " !"
    name = one_line(_short(row.record.kernel) + mark, style=STATUS_STYLE.get(row.record.status, ""))
    ratio = interval(row.to_baseline) if row.to_baseline else "1" if _is_baseline(row) else ABSENT
    figures = (duration(row.median_us), spread, ratio, rate(row.tflops))
    return [name, *(Text(figure) for figure in figures)]


def _short(kernel: str) -> str:
    """A user's own kernel without the folders of its path."""
    return kernel.rpartition("/")[2] if ".py:" in kernel else kernel


def _is_baseline(row: Row) -> bool:
    from andrea_bench.errors import BadInput

    try:
        return find_suite(row.record.suite).baseline == row.record.kernel
    except BadInput:
        return False


def _print_doubts(console: Console, group: GroupRows) -> None:
    """Which times of the Group are to be doubted, and why: what all share in one line, the rest by kernel."""
    doubts: dict[str, list[str]] = {}
    timed = [row for row in group.rows if row.median_us is not None]
    for row in timed:
        for reason in row.record.validity.reasons:
            doubts.setdefault(reason, []).append(_short(row.record.kernel))
    for reason, kernels in doubts.items():
        who = "all" if len(kernels) == len(timed) else ", ".join(kernels)
        console.print(one_line(f"  ! {who}: {reason}", "dim"))


def _print_launches(console: Console, group: GroupRows) -> None:
    """Which kernels of a GPU can't be launched as fast as they run: alone, they leave it idle."""
    slow = [
        f"{_short(row.record.kernel)} {duration(row.launch_us)}"
        for row in group.rows
        if row.median_us is not None and row.launch_us is not None and row.launch_us > row.median_us
    ]
    if slow:
        text = f"  the host takes longer to launch than the GPU to run (--graph: launched once): {', '.join(slow)}"
        console.print(one_line(text, "dim"))


def _print_counters(console: Console, group: GroupRows) -> None:
    """What the machine was doing meanwhile: the kernels of a Group are interleaved and share their counters."""
    lines = [counters_line(row.record.counters) for row in group.rows if row.median_us is not None]
    for line in dict.fromkeys(lines):
        if line:
            console.print(one_line(f"  {line}", "dim"))


def _print_reasons(console: Console, groups: Sequence[GroupRows]) -> None:
    """Which kernels have no time in the suite, one line a reason."""
    reasons: dict[str, dict[str, None]] = {}
    for group in groups:
        for row in group.rows:
            if row.median_us is None:
                text = f"{row.record.status}: {row.record.reason}"
                reasons.setdefault(text, {})[_short(row.record.kernel)] = None
    for reason, kernels in reasons.items():
        console.print(one_line(f"  {', '.join(kernels)}: {reason}", "dim"))


def _print_alignment(console: Console, groups: Sequence[GroupRows]) -> None:
    found = misalignments(groups)
    if not found:
        return
    table = Table(
        title=Text("Cost of a width per useful FLOP, beside the best aligned neighbour"),
        title_justify="left",
        box=None,
    )
    table.add_column("kernel", overflow="fold")
    for head in ("width", "beside", "cost per useful FLOP", "low to high"):
        table.add_column(head, justify="right")
    for one in found:
        cost = f"{100 * (one.cost - 1):+.1f} %"
        span = f"{100 * (one.low - 1):+.1f} to {100 * (one.high - 1):+.1f} %"
        doubtful = any(row.record.validity.verdict != "valid" for row in (one.row, one.base))
        name = one.kernel + " !" * doubtful
        table.add_row(*(one_line(t) for t in (name, str(one.width), str(one.base_width), cost, span)))
    console.print(table)


def print_answers(console: Console, sentences: Sequence[Sentence]) -> None:
    """The answers, one a paragraph; of very many, the first."""
    if sentences:
        console.print()
        console.print(Text("Answers (measured)", "bold"))
    for sentence in sentences[:MOST_ANSWERS]:
        console.print(one_line(f"- {sentence.text}{' !' if sentence.doubts else '.'}"))
    if len(sentences) > MOST_ANSWERS:
        console.print(f"... and {len(sentences) - MOST_ANSWERS} more (--json has all)")
    if any(sentence.doubts for sentence in sentences[:MOST_ANSWERS]):
        console.print(Text("! rests on times in doubt, for the reasons below their tables", "dim"))


def count_line(groups: Iterable[GroupRows]) -> str:
    """How many cells ended in which status, as in `58 cells: 45 ok, 13 unsupported`."""
    return tally(groups).line()


# ---- what the times rest on --------------------------------------------------------------------------
@dataclass
class Tally:
    """Cells of a Run, counted: by status and device; those with a time by verdict and by kind of doubt; those without
    by reason."""

    statuses: Counter[str] = field(default_factory=Counter)
    devices: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[str] = field(default_factory=Counter)
    doubts: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        """As in `58 cells: 45 ok, 13 unsupported`."""
        parts = ", ".join(f"{n:,} {status}" for status, n in self.statuses.most_common())
        return f"{counted(self.statuses.total(), 'cell')}: {parts}" if parts else "no cells"


def tally(groups: Iterable[GroupRows]) -> Tally:
    """The cells of all Groups, counted."""
    found = Tally()
    for row in (row for group in groups for row in group.rows):
        record = row.record
        found.statuses[record.status] += 1
        found.devices[record.device] += 1
        if row.median_us is None:
            found.reasons[no_time(record.status, record.reason)] += 1
        else:
            found.verdicts[record.validity.verdict] += 1
            found.doubts.update({kind_of(reason) for reason in record.validity.reasons})
    return found


def no_time(status: str, reason: str | None) -> str:
    """Why a cell has no time. One that was timed has none where its samples can't be times."""
    said = reason or "no reason stored"
    return said if status in TIMED else f"{status}: {said}"


def print_conditions(console: Console, counts: Tally, since: str, origin: str) -> None:
    """What became of the cells, how many times are valid and why most often not, why cells have none, and where all
    come from."""
    cells = f"{counts.line()}, measured from {since}" if since else counts.line()
    for text in (cells, *_validity(counts), origin):
        console.print(one_line(text))


def _validity(counts: Tally) -> Iterator[str]:
    if counts.verdicts:
        told = ", ".join(f"{counts.verdicts[verdict]:,} {verdict}" for verdict in VERDICTS)
        yield f"times: {told}{_commonest(counts.doubts)}"
    if counts.reasons:
        yield f"without a time: {counted(counts.reasons.total(), 'cell')}{_commonest(counts.reasons)}"


def _commonest(reasons: Counter[str]) -> str:
    if not reasons:
        return ""
    (reason, n), *_ = reasons.most_common(1)
    return f"; most often: {reason} ({counted(n, 'cell')})"


def measured_on(head: RunHead, devices: Iterable[str]) -> str:
    """The machine of a Run, as in `on AMD EPYC (1 thread), host tower, torch 2.13.0`."""
    environment = head.environment
    devices = list(devices) or [str(environment.get("device") or "device not known")]
    known = {
        "host": environment.get("host"),
        "torch": (environment.get("libraries") or {}).get("torch"),
        "driver": environment.get("driver_version") if any(d.startswith("cuda") for d in devices) else None,
    }
    machines = " and ".join(dict.fromkeys(machine_name(device, environment) for device in devices))
    return ", ".join([f"on {machines}", *(f"{name} {value}" for name, value in known.items() if value)])
