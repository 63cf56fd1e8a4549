"""Page: the machine, the conditions, and how many cells can be trusted."""

import shlex
from collections import Counter
from typing import Any

from andrea_bench.report.content import Heading, MeasuredRun, Page, Part, Subject, Table
from andrea_bench.report.pages.meanwhile import meanwhile
from andrea_bench.report.words import kind_of

PROTOCOL = (
    "timing_mode",
    "cache",
    "threads",
    "processes",
    "min_samples",
    "target",
    "time_limit_s",
    "warmup_rounds",
    "seed",
)
UNITS = ("bytes", "KiB", "MiB", "GiB")


def machine(subject: Subject) -> Page:
    """What was measured on, under which conditions, and what can be believed."""
    title = "Machine and validity"
    if not subject.runs:
        return Page("machine", title, absent="no Run was given")
    parts: list[Part] = []
    for run in subject.runs:
        if len(subject.runs) > 1:
            parts.append(Heading(run.label))
        if not run.head.complete:
            parts.append("This Run is not complete: its sweep was cut off, and what is here is what was measured.")
        parts += [_conditions(run), _validity(run), *_reasons(run)]
    return Page("machine", title, parts)


def _conditions(run: MeasuredRun) -> Table:
    head, environment = run.head, run.head.environment
    rows = [("host", _text(environment.get("host"))), ("device", _text(environment.get("device")))]
    for name in ("os", "cpu"):
        rows.append((name, _text(environment.get(name))))
    rows += [(f"GPU {i}", _text(gpu)) for i, gpu in enumerate(environment.get("gpus") or [])]
    if not environment.get("gpus") and environment.get("gpus_reason"):
        rows.append(("GPUs", f"none: {environment['gpus_reason']}"))
    for name in ("python", "libraries", "variables", "git"):
        if environment.get(name):
            rows.append((name, _text(environment[name])))
    protocol = {name: head.protocol[name] for name in PROTOCOL if name in head.protocol}
    rows += [
        ("protocol", _text(protocol)),
        ("command", shlex.join(["andrea-bench", *head.arguments])),
        ("started, ended", f"{head.started_at}, {head.ended_at or 'not ended'}"),
    ]
    rows += meanwhile(run)
    return Table("Machine and conditions", ("what", "value"), rows)


def _text(value: Any) -> str:
    """A piece of the environment in one line; what is not known (None, and its reason) is left to run.json."""
    if isinstance(value, dict):
        known = {k: v for k, v in value.items() if v is not None and not k.endswith("_reason")}
        return "; ".join(_named(k, v) for k, v in known.items())
    if isinstance(value, list):
        return ", ".join(map(_text, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "not known" if value is None else str(value)


def _named(name: str, value: Any) -> str:
    """As in `memory 23.5 GiB`, `virtual machine yes`."""
    if name.endswith("_bytes") and isinstance(value, int):
        power = next((p for p in (3, 2, 1) if value >= 1024**p), 0)
        return f"{name.removesuffix('_bytes').replace('_', ' ')} {value / 1024**power:.4g} {UNITS[power]}"
    return f"{name.replace('_', ' ')} {_text(value)}"


def _validity(run: MeasuredRun) -> Table:
    rows = run.rows()
    timed = Counter(row.record.validity.verdict for row in rows if row.median_us is not None)
    other = Counter(row.record.status for row in rows if row.median_us is None)
    counts = [(f"measured, {verdict}", str(timed[verdict])) for verdict in ("valid", "suspect", "invalid")]
    counts += [(f"{status}, no time", str(n)) for status, n in other.most_common()]
    return Table("Cells by what became of them", ("what", "cells"), [*counts, ("all", str(len(rows)))],
                 frozenset({"cells"}))  # fmt: skip


def _reasons(run: MeasuredRun) -> list[Part]:
    """Why times are in doubt and why cells have none, the most frequent first."""
    doubts: Counter[tuple[str, str]] = Counter()
    missing: dict[tuple[str, str], set[str]] = {}
    for row in run.rows():
        record = row.record
        if row.median_us is None:
            missing.setdefault((record.status, record.reason or "no reason stored"), set()).add(record.kernel)
        else:
            doubts.update((record.validity.verdict, kind_of(reason)) for reason in record.validity.reasons)
    parts: list[Part] = []
    if doubts:
        rows = [(verdict, reason, str(n)) for (verdict, reason), n in doubts.most_common(30)]
        parts.append(Table("Why times are in doubt", ("verdict", "reason", "cells"), rows, frozenset({"cells"}), True))
    if missing:
        kernels = [(status, reason, ", ".join(sorted(k))) for (status, reason), k in missing.items()]
        parts.append(Table("Why cells have no time", ("status", "reason", "kernels"), kernels[:60], folded=True))
    return parts
