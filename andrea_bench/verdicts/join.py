"""Two Runs side by side: which of their Records belong together, and what forbids comparing them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from andrea_bench.environment import differences
from andrea_bench.errors import BadInput
from andrea_bench.record import TIMED, Record
from andrea_bench.store import StoredRun
from andrea_bench.verdicts.document import Difference
from andrea_bench.verdicts.policy import Policy


@dataclass
class Pair:
    """The Records of one cell; None where a Run lacks it. differs: what it differs in within the cell."""

    base: Record | None
    head: Record | None
    differs: tuple[Difference, ...] = ()


def run_differences(base: StoredRun, head: StoredRun, policy: Policy) -> list[Difference]:
    """What the machines and protocols of two Runs differ in."""
    found = [("device", text) for text in differences(base.head.environment, head.head.environment)]
    threads = [run.head.protocol.get("threads") for run in (base, head)]
    if None not in threads and threads[0] != threads[1]:
        found.append(("threads", f"threads: {threads[0]} -> {threads[1]}"))
    return [Difference(name=name, text=text, allowed=name in policy.allow_different) for name, text in found]


def join(base: list[Record], head: list[Record], policy: Policy) -> Iterator[Pair]:
    """All cells of both, in the order of base, then those that only head has.

    One cell may have several Records, by device, timing mode and cache state: those that agree in all three
    (a GPU's index aside) belong together, then what is left of a cell, in order."""
    partners = _partners(base, head)
    for record in base:
        partner = partners.pop(id(record), None)
        found = tuple(
            Difference(name=name, text=text, allowed=name in policy.allow_different)
            for name, text in (_differing(record, partner) if partner else ())
        )
        yield Pair(record, partner, found)
    for record in head:
        if id(record) in partners:
            yield Pair(None, record)


def _partners(base: list[Record], head: list[Record]) -> dict[int, Record]:
    """The head Record of each base Record, by the id of the latter; head Records without one by their own."""
    waiting: dict[str, list[Record]] = defaultdict(list)
    for record in head:
        waiting[record.cell_id].append(record)
    found: dict[int, Record] = {}
    for exactly in (True, False):
        for record in base:
            candidates = waiting[record.cell_id] if id(record) not in found else []
            for i, other in enumerate(candidates):
                if not exactly or not _differing(record, other):
                    found[id(record)] = candidates.pop(i)
                    break
    return found | {id(record): record for rest in waiting.values() for record in rest}


def _differing(base: Record, head: Record) -> list[tuple[str, str]]:
    found = []
    if _device(base) != _device(head):
        name = "threads" if "threads=" in base.device + head.device else "device"
        found.append((name, f"device: {base.device} -> {head.device}"))
    if all(record.status in TIMED and record.samples_us for record in (base, head)):
        if base.timing_mode != head.timing_mode:
            found.append(("timing_mode", f"timing mode: {base.timing_mode} -> {head.timing_mode}"))
        if base.cache != head.cache:
            found.append(("cache", f"cache: {base.cache} -> {head.cache}"))
    return found


def _device(record: Record) -> str:
    """The device without a GPU's index: the same card may have another number the next day."""
    return ":".join(part for part in record.device.split(":") if not part.isdigit())


def refuse_copies(base: StoredRun, head: StoredRun) -> None:
    """Raises BadInput where both are one Run, or copies of it: nothing was measured twice."""
    if base.folder.resolve() == head.folder.resolve():
        raise BadInput(f"{base.folder}: is both base and head; compare two Runs")
    samples = [[r.samples_us for r in run.records if r.samples_us] for run in (base, head)]
    if samples[0] and samples[0] == samples[1]:
        raise BadInput(f"{base.folder} and {head.folder} hold the same samples: one is a copy of the other")
