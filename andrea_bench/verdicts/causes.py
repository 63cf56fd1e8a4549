"""What changed beside the time: the likely causes of a verdict."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.problem import Problem
from andrea_bench.record import Record
from andrea_bench.store import StoredRun

FACTS = "facts.json"  # what `inspect --save RUN/facts.json` leaves beside a Run's records
FACT_FIELDS = ("registers_per_thread", "spill_store_bytes", "spill_load_bytes", "shared_memory_bytes",
               "mma_efficiency", "occupancy", "code_hash")  # fmt: skip
CLOCK_TOLERANCE = 0.02  # of two SM clocks: a boost clock moves from Group to Group
CLOCKS_SET = "application clocks setting"  # one of NVML's reasons for a clock


class Causes:
    """Of two Runs; reads the Facts beside them, where both have some. stored: whether they lie in folders."""

    def __init__(self, base: StoredRun, head: StoredRun, *, stored: bool = True) -> None:
        self._run_wide = list(_run_wide(base, head))
        self._facts = [_facts(run.folder / FACTS) if stored else {} for run in (base, head)]

    def of(self, base: Record, head: Record) -> list[str]:
        """What is different about one cell, a line each: the nearest causes first."""
        found = []
        if _other_backend(base, head):
            found.append(f"selected backend: {base.selected_backend} -> {head.selected_backend}")
        hashes = base.code.kernel_source_hash, head.code.kernel_source_hash
        if all(hashes) and hashes[0] != hashes[1]:
            # The hash covers the whole file and what it imports: another kernel in it may be what changed.
            found.append(f"source file of {head.kernel} changed: {hashes[0]} -> {hashes[1]}")
        return found + list(_other_clock(base, head)) + list(self._changed_facts(head)) + self._run_wide

    def _changed_facts(self, record: Record) -> Iterator[str]:
        before, after = (facts.get(_key(record.kernel, record.problem)) for facts in self._facts)
        for field in FACT_FIELDS:
            if before and after and before.get(field) != after.get(field):
                yield f"Facts of {record.kernel}: {field} {before.get(field)} -> {after.get(field)}"


def _other_backend(base: Record, head: Record) -> bool:
    """Whether another implementation ran. On a CPU operators are listed, the longest first, and short ones come and
    go from call to call: there the longest of each side must be one that the other side has not."""
    before, after = base.selected_backend, head.selected_backend
    if not before or not after:
        return False
    if not head.device.startswith("cpu"):
        return before != after
    lists = before.split(", "), after.split(", ")
    return lists[0][0] not in lists[1] or lists[1][0] not in lists[0]


def _other_clock(base: Record, head: Record) -> Iterator[str]:
    """That the GPU ran at another SM clock, and on which side alone its application clocks were set."""
    before, after = (record.counters.get("gpu_sm_clock_mhz") for record in (base, head))
    if not before or not after or abs(before - after) <= CLOCK_TOLERANCE * max(before, after):
        return
    limited = [CLOCKS_SET in (record.counters.get("gpu_event_reasons") or []) for record in (base, head)]
    by = f" ({CLOCKS_SET} in {'base' if limited[0] else 'head'} alone)" if limited[0] != limited[1] else ""
    yield f"SM clock: {before:.0f} -> {after:.0f} MHz{by}"


def _run_wide(base: StoredRun, head: StoredRun) -> Iterator[str]:
    environments = base.head.environment, head.head.environment
    for kind in ("libraries", "variables"):
        before, after = ({**(e.get(kind) or {})} for e in environments)
        for name in sorted({*before, *after}):
            if before.get(name) != after.get(name):
                yield f"{name}: {before.get(name, 'absent')} -> {after.get(name, 'absent')}"
    for name in ("driver_version", "cuda_driver_version", "python"):
        old, new = (e.get(name) for e in environments)
        if old and new and old != new:
            yield f"{name.replace('_', ' ')}: {old} -> {new}"


def _facts(file: Path) -> dict[tuple[str, Problem], dict[str, Any]]:
    """Facts by kernel and Problem; of several GPUs the first. Raises BadInput of what can't be read."""
    if not file.is_file():
        return {}
    found: dict[tuple[str, Problem], dict[str, Any]] = {}
    try:
        for entry in json.loads(file.read_bytes())["facts"]:
            found.setdefault(_key(entry["kernel"], msgspec.convert(entry["problem"], Problem)), entry)
    except (ValueError, KeyError, TypeError, msgspec.ValidationError) as error:
        raise BadInput(f"{file}: are no Facts that `inspect --save` wrote ({error})") from None
    return found


def _key(kernel: str, problem: Problem) -> tuple[str, Problem]:
    return kernel, problem.replace(n_layer=1, batch=1)
