"""Two result files of asv side by side: our verdict on each combination, with asv's own beside it."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from andrea_bench.errors import BadInput
from andrea_bench.statistics import Ratio, Shift, holm, unpaired_shift
from andrea_bench.tracking.results import MACHINE_FIELDS, Key, Point, Results
from andrea_bench.verdicts.document import CellName, CellVerdict, Difference, Document, Verdict
from andrea_bench.verdicts.judge import decide
from andrea_bench.verdicts.outcome import conclude
from andrea_bench.verdicts.policy import Policy

# asv's own rule: `asv continuous` and `compare` call a change by more than this factor, if it is significant.
ASV_FACTOR, ASV_P = 1.1, 0.002
ASV_CONFIDENCE = 0.99  # of the interval that asv stores for each median
SECONDS_US = 1e6
BY_INTERVALS = "by asv's 99 % intervals"


@dataclass(frozen=True)
class _Timed:
    """A combination whose samples both sides have, and its shift."""

    base: Point
    head: Point
    shift: Shift


def judge_results(base: Results, head: Results, policy: Policy) -> Document:
    """The verdict on every combination of two result files, joined by benchmark and values of parameters.

    Times with samples (`asv run --record-samples`, `asv continuous`) are tested as one family, as Runs are, but
    each call counts as a unit, for asv keeps no processes apart. Times without samples are judged by asv's 99 %
    intervals, each by itself. What is read from compiled code has no noise: any increase is `slower`. Other
    tracked values have no interval: within the allowance they are `same`, beyond it `inconclusive`.
    Raises BadInput where both sides are one file.
    """
    if base.file.resolve() == head.file.resolve():
        raise BadInput(f"{base.file}: is both base and head; name two commits")
    document = Document(verdict="same", exit_code=0, reason="", policy=policy)
    document.differences = _differences(base, head, policy)
    _Judged(document).judge(base, head)
    conclude(document, [])
    return document


def _differences(base: Results, head: Results, policy: Policy) -> list[Difference]:
    found = []
    for name in MACHINE_FIELDS:
        before, after = base.machine_facts.get(name), head.machine_facts.get(name)
        # A machine's memory is told in bytes and differs by some pages from boot to boot.
        close = name == "ram" and before and after and abs(int(before) / int(after) - 1) < 0.02
        if before != after and not close:
            text = f"{name}: {before} -> {after}"
            found.append(Difference(name="device", text=text, allowed="device" in policy.allow_different))
    return found


class _Judged:
    def __init__(self, document: Document) -> None:
        self._document, self._policy = document, document.policy
        self._slots: list[CellVerdict | _Timed] = []

    def judge(self, base: Results, head: Results) -> None:
        for key, point in base.points.items():
            self._pair(point, head.points.get(key))
        new = [point for key, point in head.points.items() if key not in base.points and point.status == "ok"]
        self._document.only_head += [_name(point) for point in new]
        tested = [slot for slot in self._slots if isinstance(slot, _Timed)]
        p_values = [timed.shift.p_above(1 + self._allowance(timed.base)) for timed in tested]
        levels = iter(holm(p_values, 1 - self._policy.confidence))
        self._document.cells = [
            self._tested(slot, 1 - next(levels)) if isinstance(slot, _Timed) else slot for slot in self._slots
        ]
        self._warn(base, head, tested)

    def _warn(self, base: Results, head: Results, tested: Sequence[_Timed]) -> None:
        warnings = self._document.warnings
        if tested:
            warnings.append("asv keeps no processes apart: each call counts as a unit, so intervals are too narrow")
        if any(BY_INTERVALS in cell.reason for cell in self._document.cells):
            warnings.append("times without samples are judged by asv's 99 % intervals, each by itself; "
                            "`asv run --record-samples` lets all be tested together")  # fmt: skip
        for name in sorted(base.machine_facts.keys() | head.machine_facts.keys()):
            before, after = base.machine_facts.get(name), head.machine_facts.get(name)
            if name not in (*MACHINE_FIELDS, "machine", "version") and before != after:
                warnings.append(f"{name}: {before} -> {after}")

    def _pair(self, base: Point, head: Point | None) -> None:
        if head is None or (base.status == "ok" and head.status == "skipped" and base.version == head.version):
            # asv writes the same for what was skipped and what -b left out.
            gone = "is missing in head" if head is None else "was skipped or not selected in head"
            if base.status == "ok":
                self._document.only_base.append(_name(base, None if head is None else gone))
                if not self._policy.allow_missing:
                    self._give(base, "broken", f"was ok, {gone} (--allow-missing lets it pass)")
        elif base.version != head.version:
            self._give(head, "not_comparable", f"the benchmark's version changed: {base.version} -> {head.version}")
        elif base.status != "ok":
            if head.status == "ok":
                self._document.only_head.append(_name(head, f"was {base.status} in base"))
            else:
                self._document.not_timed.append(_name(head, f"{base.status} in base, {head.status} in head"))
        elif head.status != "ok":
            self._give(head, "broken", "was ok, failed in head")
        elif base.type == "time":
            self._time(base, head)
        else:
            self._value(base, head)

    def _time(self, base: Point, head: Point) -> None:
        if base.samples and head.samples:
            try:
                self._slots.append(_Timed(base, head, unpaired_shift(head.samples, base.samples)))
            except ValueError as error:
                self._give(head, "inconclusive", f"invalid: {error}", invalid=True)
        elif none := [value for value in (base.value, head.value) if value is not None and value <= 0]:
            self._give(head, "inconclusive", f"invalid: a time of {none[0]:g} s", invalid=True)
        elif not (base.value and head.value and base.low and base.high and head.low and head.high):
            self._give(head, "inconclusive", "asv took too few samples for an interval of the median")
        else:
            confidence = 2 * ASV_CONFIDENCE - 1  # of the ratio: either interval may miss
            ratio = Ratio(head.value / base.value, head.low / base.high, head.high / base.low, 0, confidence)
            verdict, reason = decide(ratio, self._allowance(base), confidence)
            self._slots.append(self._timed_cell(base, head, ratio, confidence, verdict, f"{reason}, {BY_INTERVALS}"))

    def _tested(self, timed: _Timed, confidence: float) -> CellVerdict:
        found = timed.shift.ratio(confidence)
        verdict, reason = decide(found, self._allowance(timed.base), confidence)
        return self._timed_cell(timed.base, timed.head, found, confidence, verdict, reason)

    def _timed_cell(
        self, base: Point, head: Point, found: Ratio, needed: float, verdict: Verdict, reason: str
    ) -> CellVerdict:
        return CellVerdict(
            **_fields(head), verdict=verdict, reason=f"{reason}; asv: {asv_verdict(base, head)}",
            ratio=found.ratio, low=found.low, high=found.high, confidence=found.confidence,
            confidence_needed=needed, allowance=self._allowance(base), blocks_base=len(base.samples),
            blocks_head=len(head.samples), base_us=[(base.value or 0) * SECONDS_US],
            head_us=[(head.value or 0) * SECONDS_US],
        )  # fmt: skip

    def _value(self, base: Point, head: Point) -> None:
        assert base.value is not None
        assert head.value is not None
        before, after = (head.value, base.value) if base.higher_is_better else (base.value, head.value)
        shown = f"{base.value:.6g} -> {head.value:.6g} {head.unit}"
        if before == after:
            self._give(head, "same", f"{shown}: unchanged", ratio=1.0)
            return
        ratio = after / before if before > 0 else math.inf
        counted = is_counted(base)
        allowance = 0.0 if counted else self._policy.max_slowdown
        if counted:
            verdict: Verdict = "slower" if after > before else "faster"
        else:
            verdict = "same" if 1 / (1 + allowance) <= ratio <= 1 + allowance else "inconclusive"
            if base.unit == "bytes" and verdict != "same":
                verdict = "slower" if after > before else "faster"
        words = "worse" if after > before else "better"
        why = f"{shown}: {words}" + ("; one value has no interval" if verdict == "inconclusive" else "")
        self._give(head, verdict, why, ratio=ratio if 0 < ratio < math.inf else None)

    def _give(self, point: Point, verdict: Verdict, reason: str, **more: Any) -> None:
        self._slots.append(CellVerdict(**_fields(point), verdict=verdict, reason=reason, **more))

    def _allowance(self, base: Point) -> float:
        return self._policy.allowance((base.value or 0.0) * SECONDS_US) if base.value else self._policy.max_slowdown


def is_counted(point: Point) -> bool:
    """Whether a value is read from compiled code (the class Structure), so that any difference is a change."""
    return ".Structure." in point.benchmark


def asv_verdict(base: Point, head: Point) -> str:
    """What `asv continuous` says of two times: a change by more than its factor counts if it is significant,
    by Mann-Whitney where there are samples enough for it, else by 99 % intervals that don't meet; one sample
    always is."""
    assert base.value
    assert head.value is not None
    ratio = head.value / base.value
    if 1 / ASV_FACTOR <= ratio <= ASV_FACTOR:
        return f"{ratio:.2f}, not changed"
    word = "slower" if ratio > 1 else "faster"
    if base.count == 1 or head.count == 1:
        return f"{ratio:.2f}, {word} (by one sample)"
    sizes = len(base.samples), len(head.samples)
    if min(sizes) and 1 / math.comb(sum(sizes), min(sizes)) < ASV_P:
        shift = unpaired_shift(head.samples, base.samples)
        p = shift.p_above(1.0) if ratio > 1 else unpaired_shift(base.samples, head.samples).p_above(1.0)
        return f"{ratio:.2f}, {word}" if p < ASV_P else f"~{ratio:.2f}, not significant"
    if None in (base.low, base.high, head.low, head.high):
        return f"~{ratio:.2f}, not significant"
    assert base.low is not None and base.high is not None and head.low is not None and head.high is not None
    apart = head.low > base.high or base.low > head.high
    return f"{ratio:.2f}, {word}" if apart else f"~{ratio:.2f}, not significant"


def _fields(point: Point) -> dict[str, Any]:
    """The name of a verdict's cell: a benchmark of asv's has parameters, not a Problem."""
    values = ", ".join(value for _, value in point.parameters)
    return {"cell_id": _cell_id(point.key), "suite": point.benchmark, "kernel": values, "problem": None}


def _cell_id(key: Key) -> str:
    return hashlib.blake2b(repr(key).encode(), digest_size=8).hexdigest()


def _name(point: Point, reason: str | None = None) -> CellName:
    return CellName(**_fields(point), reason=reason)
