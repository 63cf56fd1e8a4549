"""The time of a matrix product: tiles, waves, alignment of rows, and where its operands come from."""

from math import ceil

from andrea_bench.errors import BadInput, unknown_name
from andrea_bench.hardware import Gpu, find_gpu
from andrea_bench.predict.efficiency import Known, find_efficiency
from andrea_bench.predict.prediction import (
    DRAM_LATENCY_US,
    LAUNCH_US,
    Bound,
    Prediction,
    check_memory,
    expect,
    rates,
)
from andrea_bench.problem import DTYPES, ELEMENT_BYTES, MAX_SIZE

# The block tiles that BLAS libraries have (NVIDIA's matrix multiplication guide, DU-09799). The one with the
# least bound is taken, the largest of equals.
TILES = ((256, 128), (128, 256), (128, 128), (256, 64), (64, 256), (128, 64), (64, 128), (64, 64))
# From Hopper on, two blocks of a cluster share the larger operand of the two (not on consumer Blackwell).
CLUSTER = {"9.0": 2, "10.0": 2}
# 16-byte loads need rows of whole 16 bytes; without, libraries run other kernels.
ALIGNED_ROW_BYTES = 16


def matmul(
    gpu: str | Gpu,
    *,
    m: int,
    n: int,
    k: int,
    batch: int = 1,
    dtype: str,
    shared_a: bool = False,
    known: Known = None,
) -> Prediction:
    """Predicted time of `batch` products C (m, n) = A (m, k) x B (k, n), all row-major, in one launch.

    shared_a: all products of the batch have the same A. known: refitted efficiencies. Raises BadInput for
    sizes or names that are none, Unsupported where the dtype has no matrix rate on this GPU or the operands
    do not fit its memory.
    """
    found = find_gpu(gpu)
    if dtype not in DTYPES:
        raise unknown_name("dtype", dtype, DTYPES)
    for name, size in {"m": m, "n": n, "k": k, "batch": batch}.items():
        if isinstance(size, bool) or not isinstance(size, int) or not 1 <= size <= MAX_SIZE:
            raise BadInput(f"{name} {size!r} must be an integer from 1 to {MAX_SIZE}")
    aligned = all(row * ELEMENT_BYTES[dtype] % ALIGNED_ROW_BYTES == 0 for row in (n, k))
    family = "matmul" if aligned else "matmul_misaligned"
    moved = ((1 if shared_a else batch) * m * k + batch * (k * n + m * n)) * ELEMENT_BYTES[dtype]
    check_memory(found, moved)
    bounds = [_tiled_bound(found, tile, m, n, k, batch, dtype, moved) for tile in TILES]
    bound = min(bounds, key=lambda bound: (bound.time_us, bound.flops_issued))
    key = (found.compute_capability, family, "forward")
    return expect(found, bound, find_efficiency(*key, known), key, 2 * batch * m * n * k)


def _tiled_bound(gpu: Gpu, tile: tuple[int, int], m: int, n: int, k: int, batch: int, dtype: str, moved: int) -> Bound:
    rate = rates(gpu, dtype)
    rows, columns = tile
    tiles = ceil(m / rows) * ceil(n / columns) * batch
    # Blocks that share an SM share its units, so what counts is how many of them the busiest SM gets.
    rounds = ceil(tiles / rate.sm_count)
    flops = 2 * rows * columns * k
    cluster = CLUSTER.get(gpu.compute_capability, 1)
    from_l2 = (max(tile) / cluster + min(tile)) * k * ELEMENT_BYTES[dtype]
    parts = {
        rate.matrix_unit: rounds * flops / rate.flops,
        "l2": max(rounds * from_l2 / rate.l2_bytes, rate.l2_us(moved)),
        "dram": rate.dram_us(moved),
        "launch": LAUNCH_US,
    }
    outside: tuple[str, ...] = ()
    if tiles < rate.sm_count:
        outside = (f"{tiles} tiles for {rate.sm_count} SMs: a library may split k",)
    return Bound(
        time_us=max(*parts.values(), max(parts[rate.matrix_unit], parts["l2"]) + DRAM_LATENCY_US),
        parts_us=parts,
        waves=tiles / rate.sm_count,
        tail_efficiency=tiles / (rounds * rate.sm_count),
        tile=tile,
        flops_issued=tiles * flops,
        outside=outside,
    )
