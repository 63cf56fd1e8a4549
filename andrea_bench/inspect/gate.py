"""The structural gate: what got worse between two sets of Facts, and why.

No noise, no tolerance for time: compiled code either changed or did not. Worse is new or more spills, lower
occupancy, a narrower or slower matrix instruction, more issued FLOPs for the same work, narrower loads, a
launch more, and code that no longer compiles.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from andrea_bench.inspect import loads
from andrea_bench.inspect.document import FactsDocument
from andrea_bench.inspect.facts import Facts
from andrea_bench.problem import Problem

Severity = Literal["worse", "better", "note", "missing", "extra"]
Key = tuple[str, str, str, str]

# Matrix instructions by who issues them, slowest first: mma.sync by a warp, wgmma by four, tcgen05 by a block.
_FAMILIES = ("none", "mma.sync", "wgmma", "tcgen05")
_NOTED = (
    "registers_per_thread",
    "stack_bytes",
    "shared_memory_bytes",
    "threads_per_block",
    "loop_instructions",
    "kernel_instructions",
    "bound_by",
    "blocks",
)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One difference between base and head: of which entry, in which field, how severe, and why it counts."""

    kernel: str
    gpu: str
    problem: Problem | None
    direction: str
    field: str
    base: Any
    head: Any
    severity: Severity
    reason: str

    def where(self) -> str:
        """The entry, for people: "triton_exact on rtx_4090, head_dim 72 bfloat16 forward"."""
        if self.problem is None:
            return f"{self.kernel} on {self.gpu}"
        p = self.problem
        sizes = f"head_dim {p.head_dim}, n_head {p.n_head}, seq_len {p.seq_len}, {p.dtype} {self.direction}"
        return f"{self.kernel} on {self.gpu} ({sizes}{', causal' if p.causal else ''})"


class GateResult(msgspec.Struct, frozen=True, kw_only=True):
    """verdict: `broken` (something is missing or no longer compiles), `worse`, `better` or `same`."""

    verdict: Literal["broken", "worse", "better", "same"]
    exit_code: int
    findings: list[Finding]
    compilers_base: dict[str, str | None]
    compilers_head: dict[str, str | None]

    def compiler_changes(self) -> list[str]:
        """ "triton 3.6.0 -> 3.7.1", for each compiler whose version changed. torch takes no part in compiling."""
        names = sorted((set(self.compilers_base) | set(self.compilers_head)) - {"torch"})
        versions = [(name, self.compilers_base.get(name), self.compilers_head.get(name)) for name in names]
        return [f"{name} {base or 'unknown'} -> {head or 'unknown'}" for name, base, head in versions if base != head]


def compare(base: FactsDocument, head: FactsDocument, uncovered: Iterable[str] = ()) -> GateResult:
    """What changed from base to head, the worst first. A changed compiler version is no excuse.

    uncovered: kernels that there are, but that the baseline lacks wholly, so that head was made without them.
    """
    before, after = {_key(f): f for f in base.facts}, {_key(f): f for f in head.facts}
    findings = _launches(before, after)
    more_launches = {(f.kernel, f.gpu, _text(f.problem), f.direction) for f in findings}
    for key, facts in before.items():
        if key not in after:
            findings.append(
                _finding(facts, "kernel", facts.kernel, None, "missing", "in the baseline, but not found now")
            )
        else:
            findings.extend(_entry(facts, after[key]))
    for key, facts in after.items():
        if key not in before and (_root(facts.kernel), *key[1:]) not in more_launches:
            findings.append(
                _finding(facts, "kernel", None, facts.kernel, "extra", "not in the baseline; --save adds it")
            )
    for kernel in uncovered:
        named = Facts(kernel=kernel, gpu="all", compute_capability="")
        findings.append(
            _finding(named, "kernel", None, kernel, "extra", "not in the baseline; --save without --check adds it")
        )
    order = ("missing", "worse", "better", "extra", "note")
    findings.sort(key=lambda f: order.index(f.severity))
    severities = {f.severity for f in findings}
    broken = "missing" in severities or any(f.severity == "worse" and f.field == "status" for f in findings)
    verdict: Literal["broken", "worse", "better", "same"] = (
        "broken" if broken else "worse" if "worse" in severities else "better" if "better" in severities else "same"
    )
    return GateResult(
        verdict=verdict,
        exit_code=1 if verdict in ("broken", "worse") else 0,
        findings=findings,
        compilers_base=base.compilers,
        compilers_head=head.compilers,
    )


def _key(facts: Facts) -> Key:
    return facts.kernel, facts.gpu, _text(facts.problem), facts.direction


def _text(problem: Problem | None) -> str:
    return msgspec.json.encode(problem, order="sorted").decode()


def _root(kernel: str) -> str:
    return kernel.partition("/")[0]


def _finding(facts: Facts, field: str, base: Any, head: Any, severity: Severity, reason: str) -> Finding:
    return Finding(
        kernel=facts.kernel, gpu=facts.gpu, problem=facts.problem, direction=facts.direction, field=field,
        base=base, head=head, severity=severity, reason=reason,
    )  # fmt: skip


def _launches(before: dict[Key, Facts], after: dict[Key, Facts]) -> list[Finding]:
    """A kernel that now takes more launches than it did (or fewer, which is better)."""

    def count(facts: Iterable[Facts]) -> Counter[Key]:
        return Counter((_root(f.kernel), f.gpu, _text(f.problem), f.direction) for f in facts)

    counts, now = count(before.values()), count(after.values())
    found = []
    for key in counts.keys() & now.keys():
        if now[key] > counts[key]:
            facts = next(f for f in after.values() if (_root(f.kernel), *_key(f)[1:]) == key)
            reason = f"{now[key]} launches instead of {counts[key]}"
            named = msgspec.structs.replace(facts, kernel=key[0])
            found.append(_finding(named, "launches", counts[key], now[key], "worse", reason))
    return found


def _entry(base: Facts, head: Facts) -> list[Finding]:
    """All differences of one entry."""
    if base.status != "ok" or head.status != "ok":
        return _status(base, head)
    if base.same_code(head):
        return []
    rules: tuple[Callable[[Facts, Facts], Iterable[Finding]], ...] = (
        _spills, _occupancy, _matrix_instructions, _issued_flops, _load_widths, _notes
    )  # fmt: skip
    return [finding for rule in rules for finding in rule(base, head)]


def _status(base: Facts, head: Facts) -> list[Finding]:
    if base.status == head.status:
        return []
    severity: Severity = "worse" if base.status == "ok" else "better" if head.status == "ok" else "note"
    reason = (
        f"{head.status} now, was {base.status}: {head.reason}"
        if head.status != "ok"
        else f"compiles now; was {base.status}"
    )
    return [_finding(head, "status", base.status, head.status, severity, reason)]


def _spills(base: Facts, head: Facts) -> Iterable[Finding]:
    for field, what in (("spill_store_bytes", "stored"), ("spill_load_bytes", "loaded")):
        was, now = getattr(base, field), getattr(head, field)
        if was != now:
            severity: Severity = "worse" if now > was else "better"
            cause = f"{head.registers_per_thread} registers, {head.threads_per_block} threads"
            yield _finding(
                head, field, was, now, severity, f"{now} bytes spilled and {what} again, was {was} ({cause})"
            )


def _occupancy(base: Facts, head: Facts) -> Iterable[Finding]:
    if base.occupancy is None or head.occupancy is None or base.occupancy == head.occupancy:
        return
    severity: Severity = "worse" if head.occupancy < base.occupancy else "better"
    reason = (
        f"{head.warps_per_sm} warps per SM, was {base.warps_per_sm}; limited by {head.occupancy_limiter} "
        f"({head.registers_per_thread} registers, was {base.registers_per_thread}; {head.shared_memory_bytes} bytes "
        f"of shared memory, was {base.shared_memory_bytes}; {head.threads_per_block} threads, "
        f"was {base.threads_per_block})"
    )
    yield _finding(head, "occupancy", base.occupancy, head.occupancy, severity, reason)


def _matrix_instructions(base: Facts, head: Facts) -> Iterable[Finding]:
    was, now = _matrix_text(base), _matrix_text(head)
    if was == now:
        return
    change = f" ({', '.join(was) or 'none'} -> {', '.join(now) or 'none'})"
    families = [_FAMILIES.index(_family(facts)) for facts in (base, head)]
    sizes = [_mean_size(facts) for facts in (base, head)]
    paces = [_cycles_per_flop(facts) for facts in (base, head)]
    if families[0] != families[1]:
        severity: Severity = "worse" if families[1] < families[0] else "better"
        reason = f"{_FAMILIES[families[1]]} matrix instructions, was {_FAMILIES[families[0]]}{change}"
    elif paces[0] and paces[1] and abs(paces[1] / paces[0] - 1) > 0.01:
        severity = "worse" if paces[1] > paces[0] else "better"
        reason = f"{paces[1] / paces[0]:.2f} times the tensor-core cycles for each FLOP{change}"
    elif sizes[0] and sizes[1] and sizes[0] != sizes[1]:
        severity = "worse" if sizes[1] < sizes[0] else "better"
        reason = f"{sizes[1]:.0f} multiply-adds in a matrix instruction on average, was {sizes[0]:.0f}"
    else:
        return
    yield _finding(head, "mma", was, now, severity, reason)


def _matrix_text(facts: Facts) -> list[str]:
    return [
        f"{one.instruction} {one.m}x{one.n}x{one.k}"
        for one in facts.mma or []
        if one.in_loop or not facts.loop_instructions
    ]


def _family(facts: Facts) -> str:
    """The slowest kind of matrix instruction in the main loop."""
    kinds = {
        "tcgen05" if one.instruction.startswith("UTC") else "wgmma" if "GMMA" in one.instruction else "mma.sync"
        for one in facts.mma or []
        if one.in_loop
    }
    return min(kinds, key=_FAMILIES.index) if kinds else "none"


def _mean_size(facts: Facts) -> float | None:
    """Multiply-adds of one matrix instruction of the main loop, on average."""
    sizes = [(one.m, one.n, one.k, one.in_loop) for one in facts.mma or [] if one.in_loop]
    if not sizes or any(None in size for size in sizes):
        return None
    return sum(m * n * k * count for m, n, k, count in sizes if m and n and k and count) / sum(
        count for *_, count in sizes if count
    )


def _cycles_per_flop(facts: Facts) -> float | None:
    tensor = (facts.unit_cycles or {}).get("tensor")
    return tensor / facts.issued_mma_flops if tensor and facts.issued_mma_flops else None


def _issued_flops(base: Facts, head: Facts) -> Iterable[Finding]:
    """More issued FLOPs for the same work. One pass of a larger tile issues more, too: where nothing tells what a
    pass is for, that is a note."""
    was, now = base.issued_mma_flops, head.issued_mma_flops
    if was is None or now is None:
        if was != now:
            severity: Severity = "worse" if now is None else "better"
            reason = f"can be read now: {now:.0f}" if was is None else f"can't be read now, was {was:.0f}"
            yield _finding(head, "issued_mma_flops", was, now, severity, reason)
        return
    in_pass = f"{was:.0f} -> {now:.0f} matrix FLOPs issued in one pass of the loop"
    if base.mma_efficiency and head.mma_efficiency:
        costs = 1 / base.mma_efficiency, 1 / head.mma_efficiency
        text = f"{costs[0]:.3f} -> {costs[1]:.3f} matrix FLOPs issued for each useful one"
    elif _width(base) and _width(head):
        costs, text = (float(_width(base)), float(_width(head))), in_pass
    else:
        costs, text = ((was, now) if _same_pass(base, head) else (0.0, 0.0)), in_pass
    widths = [
        f"; {name} computed {b} wide became {h}"
        for name, b, h in (
            ("Q K^T", base.computed_width_qk, head.computed_width_qk),
            ("P V", base.computed_width_pv, head.computed_width_pv),
        )
        if b != h
    ]
    if abs(costs[1] - costs[0]) > 1e-9 * max(costs):
        severity = "worse" if costs[1] > costs[0] else "better"
        yield _finding(head, "issued_mma_flops", was, now, severity, text + "".join(widths))
    elif was != now and text is in_pass:
        reason = f"{in_pass}; how many of them are useful is not known"
        yield _finding(head, "issued_mma_flops", was, now, "note", reason)


def _same_pass(base: Facts, head: Facts) -> bool:
    """Whether a pass is known to do the same work: as many blocks, that load as many bytes in it, all by loads
    whose size is known."""
    return _pass(base) is not None and _pass(base) == _pass(head)


def _pass(facts: Facts) -> tuple[int, int] | None:
    """Blocks, and bytes that one of them loads in a pass; None where one of them is not known."""
    unread = facts.global_load_bytes is None or facts.async_copy_bytes is None or facts.tma_copies != 0
    if unread or not facts.blocks or not facts.threads_per_block:
        return None
    loaded = loads.moved_bytes(facts).total() * facts.threads_per_block
    return (facts.blocks, loaded) if loaded else None


def _width(facts: Facts) -> int:
    """The computed widths together; 0 where there are none."""
    return (facts.computed_width_qk or 0) + (facts.computed_width_pv or 0)


def _load_widths(base: Facts, head: Facts) -> Iterable[Finding]:
    """Loads in place of TMA copies, or narrower loads; only where there is neither, the reverse."""
    by_what = f"{loads.by_what(head)}, was {loads.by_what(base)}"
    field = "async_copy_bytes" if base.global_load_bytes == head.global_load_bytes else "global_load_bytes"
    was, now = ({"loads": f.global_load_bytes or {}, "copies": f.async_copy_bytes or {}} for f in (base, head))
    ways: tuple[tuple[Severity, Facts, Facts], ...] = (("worse", base, head), ("better", head, base))
    for severity, wide, narrow in ways:
        if loads.in_place_of_tma(wide, narrow):
            if base.tma_copies != head.tma_copies:
                yield _finding(head, "tma_copies", base.tma_copies, head.tma_copies, severity, by_what)
            else:
                yield _finding(head, field, was, now, severity, by_what)
            return
        if shift := loads.narrower(wide, narrow):
            shares = [f"{100 * share:.0f} %" for share in (shift.before, shift.after)]
            before, after = shares if severity == "worse" else shares[::-1]
            reason = f"{after} of the loaded bytes come at most {shift.width} at a time, was {before} ({by_what})"
            yield _finding(head, field, was, now, severity, reason)
            return


def _notes(base: Facts, head: Facts) -> Iterable[Finding]:
    same = "" if base.occupancy != head.occupancy else " at the same occupancy"
    for field in _NOTED:
        was, now = getattr(base, field), getattr(head, field)
        if was != now:
            yield _finding(head, field, was, now, "note", f"{field} {was} became {now}{same}")
    by_what = f"{loads.by_what(head)}, was {loads.by_what(base)}"
    for field in ("global_load_bytes", "async_copy_bytes"):
        was, now = getattr(base, field), getattr(head, field)
        if was and not now:
            yield _finding(head, field, was, now, "note", f"none of these in the main loop any more ({by_what})")
    if base.tma_copies and not head.tma_copies and not loads.moved_bytes(head):
        yield _finding(
            head, "tma_copies", base.tma_copies, 0, "note", f"none of these in the main loop any more ({by_what})"
        )
