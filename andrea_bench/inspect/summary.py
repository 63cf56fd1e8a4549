"""Facts in rows of text, for a terminal or for Markdown: head_dims side by side, the aligned one as baseline."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from andrea_bench.hardware import find_gpu
from andrea_bench.inspect import loads
from andrea_bench.inspect.facts import Facts
from andrea_bench.inspect.gate import GateResult

COLUMNS = ("head_dim", "wide", "waste", "spilled", "loads", "regs", "occ", "matrix", "bound", "cycles")
CAPTION = (
    "compiled, not measured. wide: computed in Q K^T / P V. waste: matrix FLOPs issued beyond the useful, in % of "
    "these. spilled: bytes stored / loaded a thread. loads: bytes of a load or copy of the main loop, TMA: copies of "
    "whole tiles. regs: a thread. occ: occupancy. matrix: shape of the matrix instruction. bound: the unit that needs "
    "most cycles. cycles: of that unit for each useful FLOP, against the baseline (*): a bound; a card may order them "
    "otherwise."
)


@dataclass(frozen=True)
class Table:
    """A table of text: what it is about, column names, and rows."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[str, ...]]


def tables(facts: Sequence[Facts]) -> list[Table]:
    """One table for each GPU, kind of Problem and kernel that compiled."""
    groups: dict[tuple[str, str, str], list[Facts]] = {}
    for one in facts:
        if one.status == "ok":
            groups.setdefault((one.gpu, _setting(one), one.kernel), []).append(one)
    return [_table(members) for members in groups.values()]


def refusals(facts: Sequence[Facts]) -> list[str]:
    """One line for each GPU and reason for which kernels could not be compiled, with what it was."""
    found: dict[tuple[str, str, str], dict[str, list[int]]] = {}
    for one in facts:
        if one.status != "ok":
            kernels = found.setdefault((one.gpu, one.status, one.reason or ""), {})
            head_dims = kernels.setdefault(one.kernel, [])
            if one.problem and one.problem.head_dim not in head_dims:
                head_dims.append(one.problem.head_dim)
    lines = []
    for (gpu, status, reason), kernels in found.items():
        alike: dict[str, list[str]] = {}
        for kernel, head_dims in kernels.items():
            alike.setdefault(", ".join(map(str, head_dims)), []).append(kernel)
        what = "; ".join(f"{', '.join(k)}{f' (head_dim {d})' if d else ''}" for d, k in alike.items())
        lines.append(f"{gpu}: {status}: {reason}: {what}")
    return lines


def _setting(facts: Facts) -> str:
    """What all rows of a table share."""
    p = facts.problem
    if p is None:
        return ""
    causal = ", causal" if p.causal else ""
    kv = f", kv_len {p.kv_len}" if p.kv_len != p.seq_len else ""
    return f": batch {p.batch}, seq_len {p.seq_len}{kv}, {p.dtype}{causal}, {facts.direction}"


def _table(facts: list[Facts]) -> Table:
    first = facts[0]
    baseline = _baseline({f.problem.head_dim for f in facts if f.problem})
    aligned = [f for f in facts if f.problem and f.problem.head_dim == baseline]
    best = next((c for f in aligned if (c := _cycles_per_flop(f))), None)
    rows = [_row(f, baseline, best) for f in sorted(facts, key=_order)]
    title = f"{first.kernel} on {first.gpu} ({first.compute_capability}){_setting(first)}"
    if first.problem is None:
        return Table(title, COLUMNS[1:], [row[1:] for row in rows])
    return Table(title, COLUMNS, rows)


def _order(facts: Facts) -> tuple[int, int]:
    return (facts.problem.head_dim, facts.problem.n_head) if facts.problem else (0, 0)


def _baseline(head_dims: Iterable[int]) -> int | None:
    """The aligned head_dim: 64 where it is there, else the greatest power of two, else none."""
    powers = [d for d in head_dims if d & (d - 1) == 0]
    return 64 if 64 in powers else max(powers, default=None)


def _row(facts: Facts, baseline: int | None, best: float | None) -> tuple[str, ...]:
    head_dim = facts.problem.head_dim if facts.problem else None
    widths = f"{_number(facts.computed_width_qk)}/{_number(facts.computed_width_pv)}"
    own = _cycles_per_flop(facts)
    return (
        f"{head_dim}{'*' if head_dim == baseline else ''}",
        _number(facts.computed_width_qk) if facts.computed_width_qk == facts.computed_width_pv else widths,
        "-" if (waste := waste_percent(facts)) is None else f"{waste:.0f} %",
        "-" if not facts.spill_store_bytes and not facts.spill_load_bytes
        else f"{facts.spill_store_bytes}/{facts.spill_load_bytes}",
        ",".join(load_words(facts)) or "-",
        _number(facts.registers_per_thread),
        f"{100 * (facts.occupancy or 0):.0f} %",
        " ".join(sorted({f"{m.m}x{m.n}x{m.k}" if m.m else "?" for m in facts.mma or [] if m.in_loop})) or "none",
        facts.bound_by or "-",
        "-" if not own or not best else f"{own / best:.2f}",
    )  # fmt: skip


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def waste_percent(facts: Facts) -> float | None:
    """Matrix FLOPs issued beyond the useful ones, in percent of the useful; None where that is not known."""
    return 100 * (1 / facts.mma_efficiency - 1) if facts.mma_efficiency else None


def load_widths(facts: Facts) -> list[int]:
    """Bytes of the global loads and copies by which at least a tenth of the main loop's bytes come each (a few
    narrow loads of statistics beside wide ones don't count), narrowest first."""
    moved = loads.moved_bytes(facts)
    return sorted(width for width, part in moved.items() if part >= moved.total() / 10)


def load_words(facts: Facts) -> list[str]:
    """What the main loop reads memory by: the widths of load_widths, and "TMA" for the copies of the tensor memory
    accelerator, which have no width a thread."""
    return [str(width) for width in load_widths(facts)] + ["TMA"] * bool(facts.tma_copies)


def _cycles_per_flop(facts: Facts) -> float | None:
    if not facts.useful_mma_flops or not facts.bound_by or not facts.unit_cycles:
        return None
    cycles = facts.unit_cycles[facts.bound_by]
    return None if cycles is None else cycles / facts.useful_mma_flops


def sentences(facts: Sequence[Facts]) -> list[str]:
    """One line for each GPU and head_dim but the baseline: what the attention kernels make of it.

    "72 on RTX 4090 (bfloat16 forward): triton_exact: 80 wide, 11 % waste, no spills, 16-byte loads; triton_padded: ..."
    """
    attention = [f for f in facts if f.status == "ok" and f.problem and (f.computed_width_qk or f.computed_width_pv)]
    head_dims = {f.problem.head_dim for f in attention if f.problem}
    baseline = _baseline(head_dims) if len(head_dims) > 1 else None
    groups: dict[tuple[str, int, str], list[Facts]] = {}
    for one in attention:
        if one.problem and one.problem.head_dim != baseline:
            what = f"{one.problem.dtype} {one.direction}"
            groups.setdefault((one.gpu, one.problem.head_dim, what), []).append(one)
    made = []
    for (gpu, head_dim, what), members in groups.items():
        name = find_gpu(gpu).product_name.removeprefix("NVIDIA ").removeprefix("GeForce ")
        parts = {f"{f.kernel}: {_phrase(f)}": None for f in members}
        made.append(f"{head_dim} on {name} ({what}): {'; '.join(parts)}")
    return made


def _phrase(facts: Facts) -> str:
    waste, width = waste_percent(facts), facts.computed_width_qk or facts.computed_width_pv
    spilled = (facts.spill_store_bytes or 0) + (facts.spill_load_bytes or 0)
    loads = " and ".join(word if word == "TMA" else f"{word}-byte" for word in load_words(facts)[::-1])
    return ", ".join(
        part
        for part in (
            f"{width} wide",
            "" if waste is None else f"{waste:.0f} % waste" if waste >= 0.5 else "no waste",
            f"{spilled} bytes spilled" if spilled else "no spills",
            f"{loads} loads" if loads else "",
            _bound_phrase(facts),
        )
        if part
    )


def _bound_phrase(facts: Facts) -> str:
    """Where another unit than the tensor cores binds: which, and how busy that lets the tensor cores be."""
    if not facts.bound_by or facts.bound_by == "tensor" or not facts.unit_cycles:
        return ""
    tensor, most = facts.unit_cycles["tensor"], facts.unit_cycles[facts.bound_by]
    if not tensor or not most:
        return f"{facts.bound_by} binds"
    return f"{facts.bound_by} binds (tensor cores busy {100 * tensor / most:.0f} % at most)"


def findings_table(result: GateResult) -> Table:
    """What the gate found, the worst first."""
    rows: list[tuple[str, ...]] = [(f.severity, f.where(), f.field, f.reason) for f in result.findings]
    return Table(f"inspect --check: {result.verdict}", ("severity", "where", "field", "what"), rows)


def annotations(result: GateResult, for_github: bool) -> list[str]:
    """One line a finding, as CI systems annotate: GitHub's workflow commands, else `error: where: what`."""
    levels = {"missing": "error", "worse": "error", "better": "notice", "extra": "warning", "note": "notice"}
    lines = []
    for finding in result.findings:
        level, text = levels[finding.severity], f"{finding.where()}: {finding.field}: {finding.reason}"
        if for_github:
            # The three characters that GitHub's commands give a meaning of their own.
            escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
            lines.append(f"::{level} title=andrea-bench inspect {finding.severity}::{escaped}")
        else:
            lines.append(f"{level}: {' '.join(text.split())}")
    return lines


def markdown(made: Iterable[Table], *, before: Iterable[str] = (), after: Iterable[str] = ()) -> str:
    """Tables as GitHub-flavoured Markdown between paragraphs, texts escaped."""
    blocks = [_escaped(paragraph) for paragraph in before]
    for table in made:
        blocks.append(f"### {_escaped(table.title)}")
        if table.rows:
            lines = [table.columns, ("---",) * len(table.columns), *table.rows]
            blocks.append("\n".join(f"| {' | '.join(map(_escaped, line))} |" for line in lines))
    blocks += [_escaped(paragraph) for paragraph in after]
    return "\n\n".join(blocks) + "\n"


def _escaped(text: str) -> str:
    for character in "\\|<>`*_[]":
        text = text.replace(character, "\\" + character)
    return " ".join(text.split())
