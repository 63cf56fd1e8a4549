"""The verdict on two Runs: each cell by its rank interval, all cells as one family."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from andrea_bench.record import TIMED, Record
from andrea_bench.statistics import (
    Ratio,
    Shift,
    benjamini_hochberg,
    holm,
    least_units,
    median,
    paired_shift,
    quantile,
    smallest_detectable_change,
    units_needed,
    unpaired_shift,
)
from andrea_bench.store import StoredRun
from andrea_bench.verdicts.causes import Causes
from andrea_bench.verdicts.document import CellName, CellVerdict, Document, Verdict
from andrea_bench.verdicts.join import Pair, join, refuse_copies, run_differences
from andrea_bench.verdicts.outcome import conclude
from andrea_bench.verdicts.policy import METRICS, PAIRED_QUANTILE, Metric, Policy
from andrea_bench.verdicts.wording import collapsed

SHORTEST_US, LONGEST_US = 1e-6, 1e15  # what can be a time at all: a picosecond to 30 years

MEDIAN = 0.5  # as a quantile

Blocks = dict[int, float]  # the time of each block, by its number
Compared = tuple[list[float], list[float], Shift]  # times of the blocks of base and of head (microseconds), their shift


class Invalid(Exception):
    """Samples that can't be judged, and why."""


@dataclass
class Timed:
    """A cell that was timed in both Runs, with the time of each block (microseconds) and their shift.

    medians: blocks of base and of head, and their shift, by medians; None where the times are medians."""

    base: Record
    head: Record
    base_us: list[float]
    head_us: list[float]
    shift: Shift
    allowance: float
    medians: Compared | None = None


def judge(
    base: StoredRun,
    head: StoredRun,
    policy: Policy,
    *,
    level: float | None = None,
    settled: Mapping[str, CellVerdict] | None = None,
) -> Document:
    """The verdict on every cell of two Runs, and on the whole. Raises BadInput where both are one Run.

    For one look of a sequential trial: level is the share of 1 - policy.confidence that it may spend, and
    settled are the verdicts of earlier looks, which stand (and still count as members of the family)."""
    refuse_copies(base, head)
    document = Document(verdict="same", exit_code=0, reason="", policy=policy)
    document.differences = run_differences(base, head, policy)
    for side, run in (("base", base), ("head", head)):
        if not run.head.environment:
            document.warnings.append(f"{side} {run.folder} doesn't say on which machine it was measured")
        if not run.head.complete:
            document.warnings.append(f"{side} {run.folder} is not complete: `sweep --resume` measures the rest")
    pairs = list(join(base.records, head.records, policy))
    level = 1 - policy.confidence if level is None else level
    judged = Judged(document, Causes(base, head, stored=not policy.paired), level, settled or {})
    forbidden = "; ".join(d.text for d in document.differences if not d.allowed)
    for pair in pairs:
        judged.sort(pair, forbidden)
    judged.decide()
    conclude(document, [record for record in head.records if record.status == "wrong"])
    return document


class Judged:
    """Sorts pairs into those with a verdict already and those to be tested; then tests these as one family."""

    def __init__(self, document: Document, causes: Causes, level: float, settled: Mapping[str, CellVerdict]) -> None:
        self._document, self._policy, self._causes = document, document.policy, causes
        self._level, self._settled = level, settled
        self._slots: list[CellVerdict | Timed] = []

    def sort(self, pair: Pair, forbidden: str) -> None:
        """Give the pair its verdict, or a place among those to be tested."""
        base, head = pair.base, pair.head
        if base is None or head is None:
            self._missing(base, head, forbidden)
        elif forbidden or any(not d.allowed for d in pair.differs):
            why = "; ".join(filter(None, [forbidden, *(d.text for d in pair.differs if not d.allowed)]))
            self._give(base, head, "not_comparable", why)
            self._document.differences += [d for d in pair.differs if d not in self._document.differences]
        elif head.status == "wrong":
            self._give(base, head, "broken", f"gives wrong results: {head.reason}")
        elif base.status not in TIMED:
            why = f"{base.status} in base ({base.reason}), {head.status} in head"
            self._document.not_timed.append(_name(head, why + (f" ({head.reason})" if head.reason else "")))
        elif head.status not in TIMED:
            self._give(base, head, "broken", f"was ok, is {head.status}: {head.reason}")
        else:
            self._document.differences += [d for d in pair.differs if d not in self._document.differences]
            self._timed(base, head)

    def _missing(self, base: Record | None, head: Record | None, forbidden: str) -> None:
        if base is None:
            assert head is not None
            self._document.only_head.append(_name(head))
            if head.status == "wrong":
                self._give(head, head, "broken", f"is new and gives wrong results: {head.reason}")
            return
        self._document.only_base.append(_name(base))
        if base.status in TIMED and not self._policy.allow_missing and not forbidden:
            self._give(base, base, "broken", "was ok, is missing in head (--allow-missing lets it pass)")

    def _timed(self, base: Record, head: Record) -> None:
        doubts = [f"{side} is {why}" for side, record in (("base", base), ("head", head)) if (why := _doubt(record))]
        if doubts:
            self._give(base, head, "inconclusive", "; ".join(doubts), invalid=True)
            return
        if self._policy.paired and not base.samples_us and not head.samples_us:
            self._give(base, head, "inconclusive", "no pair of it was measured whole")
            return
        metric = METRICS[self._policy.metric]
        try:
            if not self._policy.paired and len(base.samples_us) > 1 and base.samples_us == head.samples_us:
                raise Invalid("base and head hold the same samples: one is a copy of the other")
            _refuse_other_work(base, head, metric)
            base_us, head_us, shift = self._compared(base, head, self._policy.quantile)
            medians = None if self._policy.quantile == MEDIAN else self._compared(base, head, MEDIAN)
        except Invalid as error:
            self._give(base, head, "inconclusive", f"invalid: {error}", invalid=True)
            return
        allowance = self._policy.allowance(median(base_us))
        self._slots.append(Timed(base, head, base_us, head_us, shift, allowance, medians))

    def _compared(self, base: Record, head: Record, share: float) -> Compared:
        """The blocks' times at that quantile, and their shift. Raises Invalid."""
        before, after = block_times(base, "base", share), block_times(head, "head", share)
        metric = METRICS[self._policy.metric]
        shift = self._shift(costs(base, before, metric), costs(head, after, metric))
        return list(before.values()), list(after.values()), shift

    def _shift(self, base: Blocks, head: Blocks) -> Shift:
        if not self._policy.paired:
            return unpaired_shift(list(head.values()), list(base.values()))
        if base.keys() != head.keys():
            raise Invalid("blocks of base and head are not the same, so that they can't be paired")
        return paired_shift([math.log(head[block] / base[block]) for block in base])

    def _give(self, base: Record, head: Record, verdict: Verdict, reason: str, *, invalid: bool = False) -> None:
        causes = self._causes.of(base, head) if base is not head else []
        self._slots.append(
            CellVerdict(**_fields(head), verdict=verdict, reason=reason, invalid=invalid, likely_causes=causes)
        )

    def decide(self) -> None:
        """Test all timed cells as one family, and hand all cells to the document in order."""
        tested = [slot for slot in self._slots if isinstance(slot, Timed)]
        family = holm if self._policy.family == "holm" else benjamini_hochberg
        levels = iter(family([self._p_value(timed) for timed in tested], self._level))
        self._document.cells = [
            self._verdict(slot, 1 - next(levels)) if isinstance(slot, Timed) else slot for slot in self._slots
        ]

    def _p_value(self, timed: Timed) -> float:
        earlier = self._settled.get(timed.head.cell_id)
        if earlier:
            return 0.0 if earlier.verdict == "slower" else 1.0
        return timed.shift.p_above(1 + timed.allowance)

    def _verdict(self, timed: Timed, confidence: float) -> CellVerdict:
        if timed.head.cell_id in self._settled:
            return self._settled[timed.head.cell_id]
        found = timed.shift.ratio(confidence)
        verdict, reason = decide(found, timed.allowance, confidence)
        paired = self._policy.paired
        cell = CellVerdict(
            **_fields(timed.head), verdict=verdict, reason=reason, ratio=found.ratio, low=found.low, high=found.high,
            confidence=found.confidence, confidence_needed=confidence, allowance=timed.allowance,
            blocks_base=len(timed.base_us), blocks_head=len(timed.head_us),
            base_us=timed.base_us, head_us=timed.head_us,
            smallest_detectable_change=smallest_detectable_change(found, timed.allowance, confidence),
        )  # fmt: skip
        if verdict == "inconclusive":
            cell.processes_needed = units_needed(found, timed.allowance, confidence, paired=paired)
            cell.reason += _cure(
                cell, least_units(confidence, paired=paired), "pairs" if paired else "processes a side"
            )
        if timed.medians:
            cell.base_median_us, cell.head_median_us, of_medians = timed.medians
            _doubt_by_medians(cell, of_medians.ratio(confidence))
        if cell.verdict != "same":
            cell.likely_causes = self._causes.of(timed.base, timed.head)
        suspicions = [r for record in (timed.base, timed.head) for r in record.validity.reasons]
        if suspicions:
            cell.reason += f" (suspect: {'; '.join(collapsed(suspicions))})"
        return cell


def decide(found: Ratio, allowance: float, confidence: float) -> tuple[Verdict, str]:
    """The verdict that an interval gives, and its reason.

    slower: all of it lies beyond the allowance. faster: all of it lies beyond the same change the other way.
    same: it ends within the allowance; a speed-up that it can't rule out is no reason to fail."""
    shown = f"{found.ratio:.4f} ({found.low:.4f} to {found.high:.4f})"
    allowed = f"the allowance of {100 * allowance:.3g} %"
    if found.confidence < confidence - 1e-9:
        return "inconclusive", f"{found.ratio:.4f}, too few processes for an interval"
    if found.low > 1 + allowance:
        return "slower", f"{shown} lies beyond {allowed}"
    if found.high < 1 / (1 + allowance):
        return "faster", f"{shown} lies beyond {allowed} the other way"
    if found.high <= 1 + allowance:
        return "same", f"{shown} lies within {allowed}"
    return "inconclusive", f"{shown} reaches across {allowed}"


def _doubt_by_medians(cell: CellVerdict, medians: Ratio) -> None:
    """Let no cell pass whose quick calls are as fast as before, but whose medians are slower: part of its calls is.
    Not `slower`, for its level is spent on the quick calls; nor what --on-inconclusive could let pass."""
    if cell.verdict in ("same", "faster") and cell.allowance is not None and medians.low > 1 + cell.allowance:
        cell.verdict, cell.invalid = "inconclusive", True
        cell.reason += (
            f"; but by the median of all calls it is {medians.ratio:.4f} ({medians.low:.4f} to {medians.high:.4f}): "
            f"part of its calls is slower, or other work met head alone; repeat it with --out, and `gate` those Runs"
        )


def _cure(cell: CellVerdict, least: int, units: str) -> str:
    """What the data could have shown, and what would settle the case. units: of what more are needed."""
    shown = cell.smallest_detectable_change
    if shown is None:
        how = "a larger --budget" if units == "pairs" else f"sweep --processes {least}"
        wanted = f"{100 * (cell.confidence_needed or 0):.4g} % confidence needs {least} {units} ({how})"
        return f": {cell.blocks_base} in base and {cell.blocks_head} in head; {wanted}"
    needed = cell.processes_needed
    cure = f"about {needed} {units} would settle it" if needed else "it lies too near to be settled"
    return f"; the smallest slowdown this data could have shown is {100 * shown:.2g} %; {cure}"


def block_times(record: Record, side: str, share: float = MEDIAN) -> Blocks:
    """The time of each block, in order of block: that quantile of all its samples. Raises Invalid where a sample is no
    time."""
    samples = record.samples_us
    if not samples:
        raise Invalid(f"{side} is {record.status} but has no samples")
    if len(record.block) != len(samples):
        raise Invalid(f"{side} has {len(samples)} samples but {len(record.block)} blocks")
    # The sum finds NaN, which min and max may pass over.
    if not (min(samples) >= SHORTEST_US and max(samples) <= LONGEST_US and math.isfinite(sum(samples))):
        worst = next(s for s in samples if not SHORTEST_US <= s <= LONGEST_US)
        raise Invalid(f"{side} holds a time of {worst:g} us")
    # Samples of one block mostly stand together; stretch by stretch is faster than one by one.
    by_block: dict[int, list[float]] = {}
    start = 0
    for block, stretch in groupby(record.block):
        end = start + len(list(stretch))
        by_block.setdefault(block, []).extend(samples[start:end])
        start = end
    return {
        block: median(by_block[block]) if share == MEDIAN else quantile(by_block[block], share)
        for block in sorted(by_block)
    }


def costs(record: Record, blocks: Blocks, metric: Metric) -> Blocks:
    """What is judged of each block, turned so that more is worse: a time, or one over a rate."""
    work = getattr(record, metric.work) if metric.work else None
    values = {block: us if work is None else work / us for block, us in blocks.items()}
    return values if metric.better == "lower" else {block: 1 / value for block, value in values.items()}


def _refuse_other_work(base: Record, head: Record, metric: Metric) -> None:
    """Raises Invalid where two rates are not of the same work, so that their ratio is not that of the times."""
    if metric.work:
        before, after = getattr(base, metric.work), getattr(head, metric.work)
        if not before or before != after:
            raise Invalid(f"rates need the same {metric.work} on both sides, here {before} and {after}")


def paired_logs(base: Record, head: Record) -> list[float]:
    """Log of head over base, as `ab` takes their times, for each block of both, in order of block. Raises Invalid."""
    before, after = block_times(base, "base", PAIRED_QUANTILE), block_times(head, "head", PAIRED_QUANTILE)
    return [math.log(after[block] / before[block]) for block in before if block in after]


def _doubt(record: Record) -> str | None:
    if record.status == "throttled":
        return f"throttled ({record.reason})"
    if record.validity.verdict == "invalid":
        return f"invalid ({'; '.join(collapsed(record.validity.reasons))})"
    return None


def _fields(record: Record) -> dict[str, Any]:
    return {name: getattr(record, name) for name in ("cell_id", "suite", "kernel", "problem")}


def _name(record: Record, reason: str | None = None) -> CellName:
    return CellName(**_fields(record), reason=reason)
