"""How many blocks of a kernel one SM holds at once, and what limits them.

The rules are those of NVIDIA's cuda_occupancy.h (CUDA 13.5) with the shared memory opted in to its maximum;
the tests compare them with that header, compiled.
"""

import msgspec

from andrea_bench.errors import BadInput
from andrea_bench.hardware.gpu import WARP_SIZE, Architecture, Gpu, find_gpu


class Occupancy(msgspec.Struct, frozen=True, kw_only=True):
    """blocks_per_sm and warps_per_sm that one SM holds at once; occupancy is warps over the most it could.

    limiter: `registers`, `shared_memory`, `warps`, `blocks`, `barriers` or `tensor_memory`, several joined
    with `+` where they are equally tight. blocks_per_sm 0: the launch would be refused, for the limiter.
    """

    blocks_per_sm: int
    warps_per_sm: int
    occupancy: float
    limiter: str


def occupancy(
    gpu: str | Gpu,
    *,
    registers_per_thread: int,
    shared_memory_bytes: int,
    threads_per_block: int,
    barriers_per_block: int = 1,
    tensor_memory_columns: int = 0,
) -> Occupancy:
    """Occupancy of a kernel on `gpu` (a Gpu, its catalogue name, or a target as `sm_90`).

    shared_memory_bytes: static and dynamic, per block. tensor_memory_columns: of the 512 that an SM of
    compute capability 10.0 has; blocks beyond them wait when they allocate (this limit is not NVIDIA's
    header's but inferred). Raises BadInput for negative numbers and blocks without threads.
    """
    given = {
        "registers_per_thread": registers_per_thread,
        "shared_memory_bytes": shared_memory_bytes,
        "threads_per_block": threads_per_block,
        "barriers_per_block": barriers_per_block,
        "tensor_memory_columns": tensor_memory_columns,
    }
    for name, value in given.items():
        if value < (name == "threads_per_block"):
            raise BadInput(f"{name} {value} is too small for a launch")
    architecture = find_gpu(gpu).architecture
    warps = -(-threads_per_block // WARP_SIZE)
    limits = {
        "warps": _warp_limit(architecture, threads_per_block, warps),
        "registers": _register_limit(architecture, registers_per_thread, warps),
        "shared_memory": _shared_memory_limit(architecture, shared_memory_bytes),
        "blocks": architecture.max_blocks_per_sm,
    }
    # Earlier architectures have as few named barriers, but NVIDIA counts them from Hopper on only.
    if barriers_per_block and float(architecture.compute_capability) >= 9:
        slots = architecture.max_blocks_per_sm * architecture.named_barriers_per_block_slot
        limits["barriers"] = slots // barriers_per_block
    if tensor_memory_columns:
        limits["tensor_memory"] = (architecture.tensor_memory_columns_per_sm or 0) // tensor_memory_columns
    blocks = min(limit for limit in limits.values() if limit is not None)
    return Occupancy(
        blocks_per_sm=blocks,
        warps_per_sm=blocks * warps,
        occupancy=blocks * warps / architecture.max_warps_per_sm,
        limiter="+".join(name for name, limit in limits.items() if limit == blocks),
    )


def _warp_limit(architecture: Architecture, threads: int, warps: int) -> int:
    if threads > architecture.max_threads_per_block:
        return 0
    return architecture.max_warps_per_sm // warps


def _register_limit(architecture: Architecture, registers: int, warps: int) -> int | None:
    """None: no register is used. Warps live in sub-partitions of the SM, each with its own registers."""
    partitions = architecture.sub_partitions_per_sm
    per_warp = _round_up(registers * WARP_SIZE, architecture.register_allocation_unit_per_warp)
    # The hardware checks a launch as if the block's warps filled all partitions evenly.
    checked = per_warp * _round_up(warps, partitions)
    # One more than the compiler ever uses passes the hardware's check.
    if checked > architecture.registers_per_sm or registers > architecture.max_registers_per_thread + 1:
        return 0
    if not per_warp:
        return None
    return architecture.registers_per_sm // partitions // per_warp * partitions // warps


def _shared_memory_limit(architecture: Architecture, shared_memory_bytes: int) -> int | None:
    """None: no shared memory is used."""
    reserved = architecture.shared_memory_reserved_per_block_bytes
    per_block = _round_up(shared_memory_bytes + reserved, architecture.shared_memory_allocation_unit_bytes)
    if per_block > architecture.shared_memory_per_block_bytes + reserved:
        return 0
    return architecture.shared_memory_per_sm_bytes // per_block if per_block else None


def _round_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit
