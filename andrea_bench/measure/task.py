"""Task: one Group for one measuring process. Free of torch, so that the parent can make and read it."""

from datetime import UTC, datetime

import msgspec

from andrea_bench.kernel import find_kernel
from andrea_bench.problem import Problem
from andrea_bench.protocol import Protocol
from andrea_bench.record import Code, Record, cell_id

# How a process takes the samples of a turn, told when it starts; counted up when that changes. Times of revisions that
# take them in different ways differ by that, whatever their kernels do.
SAMPLING = 2


class Task(msgspec.Struct, kw_only=True):
    """One Group for one process: which kernels, and where its samples stand in the sweep.

    members: (op, kernel). block: index of the process. order_start: position of its first sample. checked: this
    process has compared all members with the reference already, and they are only to be timed, each with its samples
    on end, in one of many turns; on a CPU whoever gives the turns watches the machine.
    """

    suite: str
    problem: Problem
    members: list[tuple[str, str]]
    device: str
    device_name: str
    protocol: Protocol
    block: int = 0
    order_start: int = 0
    checked: bool = False
    git_commit: str | None = None
    dirty: bool | None = None


def empty_record(task: Task, op: str, name: str) -> Record:
    """The Record of a kernel of the Task to which nothing has happened yet."""
    kernel = find_kernel(op, name)
    width = kernel.computed_width(task.problem) if kernel.computed_width else None
    counters = {"alignment": task.problem.alignment(), "computed_width": width}
    if width is None:
        counters["computed_width_reason"] = "this kernel does not tell how wide it computes"
    return Record(
        cell_id=cell_id(task.suite, kernel.op, kernel.name, task.problem),
        suite=task.suite,
        op=kernel.op,
        kernel=kernel.name,
        problem=task.problem,
        device=task.device_name,
        status="error",
        flops=task.problem.flops(kernel.op, kernel.part),
        min_bytes=task.problem.min_bytes(kernel.op, kernel.part),
        counters=counters,
        started_at=_now(),
        code=Code(
            git_commit=task.git_commit, dirty=task.dirty, kernel_source_hash=kernel.source_hash()
        ),
    )  # fmt: skip


def unmeasured_record(task: Task, op: str, name: str) -> Record:
    """The Record of a kernel that was planned and to which no process came; it need not be known here."""
    return Record(
        cell_id=cell_id(task.suite, op, name, task.problem), suite=task.suite, op=op, kernel=name,
        problem=task.problem, device=task.device_name, status="ok", reason="planned, not measured", flops=0,
        min_bytes=0, started_at=_now(),
    )  # fmt: skip


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
