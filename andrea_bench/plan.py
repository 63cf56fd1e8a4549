"""Plan: all Cells of a sweep and the ones left out with a reason, with estimated time and memory.

Made without torch, so that it is quick and works for machines that are not there.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from andrea_bench.axes import AxisRequest, expand
from andrea_bench.errors import BadInput, unknown_name
from andrea_bench.kernel import Kernel, find_kernel
from andrea_bench.problem import ELEMENT_BYTES, Op, Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import CellHasher, Status
from andrea_bench.suite import Member, Suite, find_suite

MAX_CELLS = 1_000_000
# Suites of the default sweep, in the order in which they run.
DEFAULT_SUITES = ("projection", "attention", "alignment", "layout", "output", "layer", "decode")
START_S = 3.0  # starting a measuring process: mostly the import of torch
# The reference is computed whole up to this many scores (see measure/reference.py), in float64.
WHOLE_REFERENCE_SCORES = 2**24
SAMPLED_ROWS = 64


@dataclass(frozen=True)
class Cell:
    """One (Suite, Problem, Kernel) of a Plan. status and reason: of a cell that will not be measured."""

    suite: str
    problem: Problem
    kernel: Kernel
    status: Status | None = None
    reason: str | None = None


@dataclass
class Group:
    """One Problem with all its Kernels, measured together."""

    suite: Suite
    problem: Problem
    threads: int
    cells: list[Cell]

    @property
    def members(self) -> list[Member]:
        """(op, kernel) of the cells to be measured."""
        return [(c.kernel.op, c.kernel.name) for c in self.cells if c.status is None]


@dataclass
class Plan:
    """What a sweep will do. invalid: points of the grid that are no legal Problem, with the reason."""

    device: str
    protocol: Protocol
    groups: list[Group]
    invalid: list[tuple[dict[str, Any], str]] = field(default_factory=list)
    memory_bytes: int | None = None

    def cells(self) -> Iterator[Cell]:
        for group in self.groups:
            yield from group.cells

    def estimated_seconds(self) -> float:
        """Time of the sweep: process start, checks, compilation and sampling up to the stop rule."""
        groups = sum(estimated_group_seconds(group, self.device, self.protocol) for group in self.groups)
        starts = max(1, len({group.threads for group in self.groups}))  # each number of threads has its processes
        return START_S * self.protocol.processes * starts + groups

    def estimated_memory_bytes(self) -> int:
        """The most memory that one Group needs."""
        return max((group_memory_bytes(group) for group in self.groups if group.members), default=0)

    def documents(self) -> Iterator[dict[str, Any]]:
        """The cells as the JSON of `plan --json`."""
        for group in self.groups:
            hasher = CellHasher(group.problem)
            for cell in group.cells:
                kernel = cell.kernel
                yield {
                    "cell_id": hasher.cell_id(cell.suite, kernel.op, kernel.name),
                    "suite": cell.suite,
                    "op": kernel.op,
                    "kernel": kernel.name,
                    "problem": group.problem,
                    "threads": group.threads,
                    "status": cell.status,
                    "reason": cell.reason,
                }


def make_plan(
    names: Sequence[str],
    request: AxisRequest,
    *,
    device: str = "cpu",
    protocol: Protocol | None = None,
    only_kernels: Sequence[str] = (),
    memory_bytes: int | None = None,
) -> Plan:
    """All cells of the suites `names` (none: the default set) over the axes of `request`.

    only_kernels: names or `path.py:function`; a user's own kernel joins each suite in whose baseline's Op it
    can stand. memory_bytes: what a Group may need; a cell that needs more is skipped, with the figures.
    Raises BadInput for unknown names, an illegal single Problem, or more than a million cells.
    """
    protocol = protocol or Protocol()
    chosen = [find_suite(name) for name in names or DEFAULT_SUITES]
    threads = request.threads or [protocol.threads]
    plan = Plan(device=device, protocol=protocol, groups=[], memory_bytes=memory_bytes)
    _check_kernel_names(chosen, only_kernels)
    seen: set[tuple[str, Problem, int]] = set()
    invalid: dict[str, tuple[dict[str, Any], str]] = {}
    count = 0
    for suite in chosen:
        expansion = expand(request, defaults=dict(suite.defaults), device=device)
        for point in expansion.invalid:
            invalid.setdefault(str(point), point)
        for problem in expansion.problems:
            for one, members in suite.groups(suite, problem):
                kernels = _kernels(members, suite, only_kernels)
                for n in threads if kernels else ():
                    # Neighbours of two sizes may be the same Problem; it is measured once.
                    if (suite.name, one, n) in seen:
                        continue
                    seen.add((suite.name, one, n))
                    cells = _cells(suite, one, kernels, device, memory_bytes)
                    count += len(cells)
                    if count > MAX_CELLS:
                        raise BadInput(f"more than {MAX_CELLS:,} cells; narrow an axis or name fewer suites")
                    plan.groups.append(Group(suite, one, n, cells))
    plan.invalid = list(invalid.values())
    return plan


def _check_kernel_names(chosen: Sequence[Suite], only_kernels: Sequence[str]) -> None:
    known = {name for suite in chosen for _, name in suite.members}
    for name in only_kernels:
        if ".py:" in name:
            find_kernel(_baseline_op(chosen[0]), name)
        elif name not in known:
            raise unknown_name(f"kernel of the suites {', '.join(s.name for s in chosen)}", name, known)


def _baseline_op(suite: Suite) -> Op:
    return next(op for op, name in suite.members if name == suite.baseline)


def _kernels(members: Sequence[Member], suite: Suite, only: Sequence[str]) -> list[Kernel]:
    """The kernels of a Group; with `only`, those named and the baseline that they are compared with."""
    if only:
        wanted = {*only, suite.baseline}
        op = _baseline_op(suite)
        members = [*(m for m in members if m[1] in wanted), *((op, name) for name in only if ".py:" in name)]
    return [find_kernel(op, name) for op, name in members]


def _cells(
    suite: Suite, problem: Problem, kernels: Sequence[Kernel], device: str, memory_bytes: int | None
) -> list[Cell]:
    cells = []
    for kernel in kernels:
        status: Status | None = None
        reason = kernel.unsupported(problem, device)
        if reason:
            status = "unsupported"
        elif memory_bytes is not None and (need := cell_memory_bytes(problem, kernel)) > memory_bytes:
            status = "skipped"
            reason = f"needs about {need / 2**30:.1f} GiB; {memory_bytes / 2**30:.1f} GiB are free"
        cells.append(Cell(suite.name, problem, kernel, status, reason))
    return cells


def cell_memory_bytes(problem: Problem, kernel: Kernel) -> int:
    """Memory that measuring this cell needs at its peak: inputs and outputs, the kernel's own workspace, and
    the float64 reference with its scores, which stands beside them while the kernel is checked."""
    moved = problem.min_bytes(kernel.op, kernel.part)
    workspace = kernel.workspace_bytes(problem) if kernel.workspace_bytes else 0
    elements = moved // ELEMENT_BYTES[problem.dtype]
    scores = 0
    if kernel.op in ("attention", "layout", "layer") and kernel.part != "copy":
        rows = problem.batch * problem.n_head * problem.kv_len
        scores = rows * problem.seq_len
        if scores > WHOLE_REFERENCE_SCORES:
            scores = rows * min(problem.seq_len, SAMPLED_ROWS)
    # Scores, their exponentials and one temporary; K and V repeated for the group.
    return moved + workspace + 8 * (3 * scores + 2 * elements)


def group_memory_bytes(group: Group) -> int:
    """The most that one cell of the Group needs, beside the results that all hold."""
    return max((cell_memory_bytes(group.problem, c.kernel) for c in group.cells if c.status is None), default=0)


def estimated_group_seconds(group: Group, device: str, protocol: Protocol) -> float:
    """Compilation, checks and sampling of one Group, over all processes."""
    running = [c.kernel for c in group.cells if c.status is None]
    if not running:
        return 0.0
    calls = [seconds_per_call(group.problem, kernel, device, group.threads) for kernel in running]
    one_round = sum(calls)
    # Checked and profiled twice; the reference in float64 and in the dtype itself once for each Op.
    checks = 4 * one_round + 4 * max(calls)
    rounds = protocol.min_samples + 10
    sampling = max(protocol.min_samples * one_round, min(protocol.time_limit_s, rounds * one_round))
    compiling = sum(kernel.compile_seconds for kernel in running)
    return protocol.processes * (compiling + checks + protocol.warmup_rounds * one_round + sampling)


def seconds_per_call(problem: Problem, kernel: Kernel, device: str, threads: int) -> float:
    """A rough time of one call, for the estimate of a sweep's length only: work over a rate that such
    machines reach, plus a fixed cost a launch. Never shown as a result."""
    cuda = device.startswith("cuda")
    wide = problem.dtype in ("bfloat16", "float16")
    if cuda:
        flops_per_s, bytes_per_s, launch_s = (1e14 if wide else 1e13), 5e11, 2e-5
    else:
        # One core with AVX2 or AVX-512; 16-bit types are converted where it has no instructions for them.
        flops_per_s, bytes_per_s, launch_s = (2e10 if wide else 6e10) * threads, 5e9, 1e-5
    moved = problem.min_bytes(kernel.op, kernel.part)
    if kernel.workspace_bytes:
        # Workspace is written and read again at least twice.
        moved += 4 * kernel.workspace_bytes(problem)
    return problem.flops(kernel.op, kernel.part) / flops_per_s + moved / bytes_per_s + launch_s


def fit(
    names: Sequence[str],
    request: AxisRequest,
    axis: str,
    *,
    device: str,
    memory_bytes: int,
    protocol: Protocol,
) -> int:
    """The largest value of `axis` (batch or seq_len) at which every cell of the suites fits in memory.

    Found by doubling and halving on the one Problem that the request names. Raises BadInput where none fits.
    """
    if axis not in ("batch", "seq_len"):
        raise unknown_name("axis to fit", axis, ("batch", "seq_len"))

    def fits(value: int) -> bool:
        asked = msgspec.structs.replace(request, axes={**request.axes, axis: [value]})
        plan = make_plan(names, asked, device=device, protocol=protocol, memory_bytes=memory_bytes)
        return not any(cell.status == "skipped" for cell in plan.cells())

    if not fits(1):
        raise BadInput(f"not even {axis} 1 fits in {memory_bytes / 2**30:.1f} GiB")
    low, high = 1, 2
    while fits(high) and high < 2**30:
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


def available_memory_bytes(device: str) -> int | None:
    """Memory that a Group may take on this machine: nine tenths of what Linux calls available. None on CUDA
    (asking the driver is measure's) and where it is not told."""
    if not device.startswith("cpu"):
        return None
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024 * 9 // 10
    return None
