"""Facts: what the compiler made of a kernel for one GPU. Field by field as in schema/facts.schema.json."""

import math
from typing import Any, Literal

import msgspec

from andrea_bench.hardware import Gpu, occupancy
from andrea_bench.inspect import units
from andrea_bench.inspect.analysis import Analysis
from andrea_bench.kernel import TritonLaunch
from andrea_bench.problem import Problem

SCHEMA_VERSION = 1

FactsStatus = Literal["ok", "unsupported", "error", "timeout"]


class MatrixUse(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of matrix instruction: its shape (None: not known), and how often it stands in the main loop
    and in the kernel."""

    instruction: str
    m: int | None
    n: int | None
    k: int | None
    in_loop: int | None
    total: int | None


class Facts(msgspec.Struct, kw_only=True):
    """What the compiler made of one kernel launch for one GPU, read from the machine code and from the
    assembler's report.

    status: `ok`, `unsupported` (this GPU can't run it: reason says why), `error`, `timeout`. Where it is not
    ok all compiled fields are None. In an ok row a field that is None is unknown, and reason says why.
    Counts of instructions and bytes are static, of the main loop (without one, of the kernel).
    issued_mma_flops, useful_mma_flops: of one block in one pass of the main loop; mma_efficiency is their
    ratio. unit_cycles: SM clocks that each unit needs for that pass; bound_by the largest. waves: blocks over
    what all SMs hold at once; tail_efficiency: waves over the whole number of waves that must be run.
    """

    kernel: str
    gpu: str
    compute_capability: str
    problem: Problem | None = None
    direction: str = "forward"
    status: FactsStatus = "ok"
    reason: str | None = None
    registers_per_thread: int | None = None
    spill_store_bytes: int | None = None
    spill_load_bytes: int | None = None
    stack_bytes: int | None = None
    shared_memory_bytes: int | None = None
    threads_per_block: int | None = None
    blocks_per_sm: int | None = None
    warps_per_sm: int | None = None
    occupancy: float | None = None
    occupancy_limiter: str | None = None
    mma: list[MatrixUse] | None = None
    computed_width_qk: int | None = None
    computed_width_pv: int | None = None
    issued_mma_flops: float | None = None
    useful_mma_flops: float | None = None
    mma_efficiency: float | None = None
    global_load_bytes: dict[str, int] | None = None
    async_copy_bytes: dict[str, int] | None = None
    exp_instructions: int | None = None
    fma_instructions: int | None = None
    shared_memory_instructions: int | None = None
    branch_instructions: int | None = None
    tma_copies: int | None = None
    loop_instructions: int | None = None
    kernel_instructions: int | None = None
    unit_cycles: dict[str, float | None] | None = None
    bound_by: str | None = None
    grid: list[int] | None = None
    blocks: int | None = None
    waves: float | None = None
    tail_efficiency: float | None = None
    code_hash: str | None = None
    compile_seconds: float | None = None
    cached: bool | None = None

    def document(self) -> dict[str, Any]:
        """As it is written: where status is not ok, without the compiled fields."""
        whole: dict[str, Any] = msgspec.to_builtins(self)
        if self.status == "ok":
            return whole
        return {name: whole[name] for name in HEAD}

    def same_code(self, other: "Facts") -> bool:
        """Whether they differ at most in how long compiling took and in whether the result had been kept."""
        return self == msgspec.structs.replace(other, compile_seconds=self.compile_seconds, cached=self.cached)


HEAD = ("kernel", "gpu", "compute_capability", "problem", "direction", "status", "reason")


def make_facts(head: dict[str, Any], analysis: Analysis, launch: TritonLaunch, gpu: Gpu, cached: bool) -> Facts:
    """Facts of one launch on one GPU. head: kernel, gpu, compute_capability, problem, direction.

    A kernel that needs more shared memory (or tensor memory) than a block may have is `unsupported`.
    """
    if (refused := _refused(analysis, gpu)) is not None:
        return Facts(**head, status="unsupported", reason=refused)
    unknown = dict(analysis.unknown)
    held = occupancy(
        gpu,
        registers_per_thread=analysis.resources.registers_per_thread,
        shared_memory_bytes=analysis.shared_memory_bytes,
        threads_per_block=analysis.threads_per_block,
        barriers_per_block=analysis.resources.barriers,
        tensor_memory_columns=analysis.tensor_memory_columns,
    )
    cycles, no_tensor = units.unit_cycles(analysis, gpu)
    if no_tensor:
        unknown["unit_cycles"] = no_tensor
    issued, useful, efficiency = _matrix_flops(analysis, launch, unknown)
    blocks = math.prod(launch.grid) if launch.grid else None
    waves, tail = _waves(blocks, held.blocks_per_sm, gpu, unknown)
    return Facts(
        **head,
        reason="; ".join(f"{field}: {why}" for field, why in sorted(unknown.items())) or None,
        registers_per_thread=analysis.resources.registers_per_thread,
        spill_store_bytes=analysis.resources.spill_store_bytes,
        spill_load_bytes=analysis.resources.spill_load_bytes,
        stack_bytes=analysis.resources.stack_bytes,
        shared_memory_bytes=analysis.shared_memory_bytes,
        threads_per_block=analysis.threads_per_block,
        blocks_per_sm=held.blocks_per_sm,
        warps_per_sm=held.warps_per_sm,
        occupancy=held.occupancy,
        occupancy_limiter=held.limiter,
        mma=[
            MatrixUse(instruction=one.instruction, m=one.m, n=one.n, k=one.k, in_loop=one.in_loop, total=one.total)
            for one in analysis.mma
        ],
        computed_width_qk=analysis.width_qk,
        computed_width_pv=analysis.width_pv,
        issued_mma_flops=issued,
        useful_mma_flops=useful,
        mma_efficiency=efficiency,
        global_load_bytes=analysis.global_load_bytes,
        async_copy_bytes=analysis.async_copy_bytes,
        exp_instructions=analysis.exp_instructions,
        fma_instructions=analysis.fma_instructions,
        shared_memory_instructions=analysis.shared_memory_instructions,
        branch_instructions=analysis.branch_instructions,
        tma_copies=analysis.tma_copies,
        loop_instructions=analysis.loop_instructions,
        kernel_instructions=analysis.kernel_instructions,
        unit_cycles=cycles,
        bound_by=units.bound_by(cycles),
        grid=list(launch.grid) if launch.grid else None,
        blocks=blocks,
        waves=waves,
        tail_efficiency=tail,
        code_hash=analysis.code_hash,
        compile_seconds=round(analysis.compile_seconds, 4),
        cached=cached,
    )


def _refused(analysis: Analysis, gpu: Gpu) -> str | None:
    limit = gpu.architecture.shared_memory_per_block_bytes
    if analysis.shared_memory_bytes > limit:
        return (
            f"needs {analysis.shared_memory_bytes} bytes of on-chip shared memory per block, {gpu.name} "
            f"(compute capability {gpu.compute_capability}) allows {limit} by our catalogue; "
            "smaller tiles or fewer stages need less"
        )
    columns = gpu.architecture.tensor_memory_columns_per_sm or 0
    if analysis.tensor_memory_columns > columns:
        return (
            f"needs {analysis.tensor_memory_columns} columns of tensor memory per block, {gpu.name} has "
            f"{columns}; smaller tiles need less"
        )
    return None


def _matrix_flops(
    analysis: Analysis, launch: TritonLaunch, unknown: dict[str, str]
) -> tuple[float | None, float | None, float | None]:
    """(issued, useful, their ratio) of one block in one pass; notes in `unknown` what is not known."""
    # A float as in a result that was kept: the same in a file whether compiled or kept.
    issued = None if analysis.matrix_flops is None else float(analysis.matrix_flops)
    if analysis.passes is None:
        unknown["useful_mma_flops"] = "one pass of the machine code's loop can't be told in the source's iterations"
        return issued, None, None
    if not launch.useful_mma_flops:
        unknown["useful_mma_flops"] = "the kernel does not say how many of its matrix FLOPs are useful"
        return issued, None, None
    useful = float(launch.useful_mma_flops * analysis.passes)
    if not issued:
        unknown["mma_efficiency"] = "no matrix instruction is issued"
        return issued, useful, None
    return issued, useful, useful / issued


def _waves(
    blocks: int | None, blocks_per_sm: int, gpu: Gpu, unknown: dict[str, str]
) -> tuple[float | None, float | None]:
    if blocks is None:
        unknown["waves"] = "no grid was given"
        return None, None
    if gpu.sm_count is None:
        unknown["waves"] = f"{gpu.name} is an architecture, not a product: its SM count is not known"
        return None, None
    if not blocks_per_sm:
        unknown["waves"] = "no block fits on an SM"
        return None, None
    waves = blocks / (blocks_per_sm * gpu.sm_count)
    return waves, waves / math.ceil(waves)
