"""The time of attention: blocks of query tiles that walk the key tiles they see, or the score matrix written
and read; and decoding, which reads the KV cache."""

from dataclasses import dataclass
from functools import partial
from math import ceil

import msgspec

from andrea_bench.hardware import Gpu, occupancy
from andrea_bench.kernel import Block
from andrea_bench.predict.efficiency import Known, find_efficiency
from andrea_bench.predict.families import MMA_SYNC_SHARE, UNFUSED, AttentionFamily
from andrea_bench.predict.matrix_product import matmul
from andrea_bench.predict.prediction import (
    DRAM_LATENCY_US,
    LAUNCH_US,
    WIDENING,
    Bound,
    Prediction,
    Rates,
    check_memory,
    expect,
    in_sequence,
    rates,
    together,
)
from andrea_bench.predict.schedule import makespan
from andrea_bench.problem import ELEMENT_BYTES, Problem

# Matrix products of the forward pass per (query tile, key tile): Q K^T and P V.
FORWARD_PRODUCTS = 2
# Tiles of one head that are scheduled one by one; longer sequences are as good as continuous.
MAX_TILES = 4096
# Rows of a block's tile that one reading of K and V from shared memory serves: a warp's of mma.sync (32 of
# flash-attention 2's 128 rows), a warpgroup's of wgmma and tcgen05.
WARP_ROWS, WARPGROUP_ROWS = 32, 64
# What docs/validation.md shows of it: a softmax may read its rows more than once.
UNFUSED_CHECK = "attention with its scores in memory was up to a half slower than this on an H100"


def tiled_attention(gpu: Gpu, problem: Problem, family: AttentionFamily, known: Known) -> Prediction:
    """One pass (forward or backward) of a kernel that keeps the scores on chip."""
    bounds = [tiled_bound(gpu, problem, family, block) for block in family.blocks(problem, gpu.compute_capability)]
    key = (gpu.compute_capability, family.name, problem.direction)
    efficiency = find_efficiency(*key, known).at_head_dim(problem.head_dim)
    if ELEMENT_BYTES[problem.dtype] == 4:
        reason = f"its efficiency is that of 16-bit types, not of {problem.dtype}"
        efficiency = msgspec.structs.replace(efficiency, outside=(*efficiency.outside, reason))
    flops = problem.flops("attention")
    found = expect(gpu, together(bounds), efficiency, key, flops)
    return msgspec.structs.replace(found, launches=len(bounds))


def tiled_bound(gpu: Gpu, problem: Problem, family: AttentionFamily, block: Block) -> Bound:
    """The bound of one launch: the tiles of the other side that each block walks, over the SMs in launch order."""
    moved = problem.min_bytes("attention")
    check_memory(gpu, moved)
    rate = rates(gpu, problem.dtype, tensor_share=family.tensor_share(gpu.compute_capability))
    width = family.computed_width(problem.head_dim, gpu.compute_capability)
    walk = _walk(problem, block)
    rows, columns = walk.rows, block.columns
    seen = sorted(walk.seen, reverse=True) if family.longest_first else walk.seen
    copies = walk.copies
    if family.one_block_per_head:
        seen = [sum(seen)]
    per_tile = _tile_us(gpu, rate, problem, family, block, rows, width)
    wanted = ceil(len(seen) * copies / rate.sm_count)
    resident = min(_blocks_per_sm(gpu, problem, rows, columns, width, block.warps), wanted)
    # One warp per sub-partition can't overlap its own exp with its own matrix products; two can.
    takes_turns = gpu.compute_capability in family.takes_turns_on
    overlapped = not takes_turns and resident * block.warps >= 2 * gpu.architecture.sub_partitions_per_sm
    longest = max(per_tile.values())
    in_turn = longest if overlapped else max(longest, per_tile[rate.matrix_unit] + per_tile["exp"])
    latency = DRAM_LATENCY_US / resident

    work = sum(seen) * copies
    blocks = len(seen) * copies
    ends, ends_in_turn = (
        makespan([latency + us * tiles for tiles in seen], copies, rate.sm_count) for us in (longest, in_turn)
    )
    stretch = makespan(seen, copies, rate.sm_count) * rate.sm_count / work
    parts = {unit: us * work / rate.sm_count * stretch for unit, us in per_tile.items()}
    parts["l2"] = max(parts["l2"], rate.l2_us(moved))
    parts |= {"dram": rate.dram_us(moved), "launch": LAUNCH_US}
    return Bound(
        time_us=max(ends, *parts.values()),
        in_turn_us=max(ends_in_turn, *parts.values()),
        parts_us=parts,
        waves=blocks / rate.sm_count,
        tail_efficiency=1 / stretch,
        tile=(rows, columns),
        computed_width=width,
        flops_issued=2 * block.matrix_products * rows * columns * width * round(work),
        outside=_outside(blocks, rate, problem),
    )


def _outside(blocks: int, rate: Rates, problem: Problem) -> tuple[str, ...]:
    reasons: tuple[str, ...] = ()
    if blocks < rate.sm_count:
        reasons += (f"{blocks} blocks for {rate.sm_count} SMs: some implementations split the keys",)
    if problem.seq_len < 512:
        reasons += (f"seq_len {problem.seq_len}: efficiencies were seen from 512 on",)
    return reasons


@dataclass(frozen=True)
class _Walk:
    """rows: of a block. seen: tiles of the other side that each block of one head walks, from the first on.
    copies: heads that have such blocks, in all sequences."""

    rows: int
    seen: list[float]
    copies: int


def _walk(problem: Problem, block: Block) -> _Walk:
    """Blocks of queries walk the keys that they see; blocks of keys (dkv) the queries that see them, of every
    query head of their group. Causal is aligned bottom-right, so that from the last one on a key is seen by one
    more query each."""
    keys_own = block.part == "dkv"
    own, other = (problem.kv_len, problem.seq_len) if keys_own else (problem.seq_len, problem.kv_len)
    rows = min(block.rows, max(16, 1 << (own - 1).bit_length()))
    shift = None if not problem.causal else 0 if keys_own else other - own
    seen = _seen_tiles(own, other, rows, block.columns, shift)
    if not keys_own:
        return _Walk(rows, seen, problem.batch * problem.n_head)
    group = problem.n_head // problem.n_kv_head
    return _Walk(rows, [group * tiles for tiles in seen], problem.batch * problem.n_kv_head)


def _seen_tiles(own: int, other: int, rows: int, columns: int, shift: int | None) -> list[float]:
    """Tiles of `other` that each tile of `own` visits, of which row i sees i + shift and those before (None: all).
    More than MAX_TILES tiles are grouped, each group with its tiles' sum spread evenly."""
    tiles = ceil(own / rows)
    all_others = ceil(other / columns)
    if shift is None:
        grouped = min(tiles, MAX_TILES)
        return [all_others * tiles / grouped] * grouped
    group = ceil(tiles / MAX_TILES)
    seen = []
    for first in range(0, tiles, group):
        last = min(first + group, tiles)
        middle_row = (first + last) / 2 * rows if group > 1 else min(last * rows, own)
        visible = min(max(middle_row + shift, 1), other)
        seen.append(float(ceil(visible / columns) * (last - first)))
    return seen


def _tile_us(
    gpu: Gpu, rate: Rates, problem: Problem, family: AttentionFamily, block: Block, rows: int, width: int
) -> dict[str, float]:
    """What one (query tile, key tile) takes of each unit of an SM, in microseconds."""
    element = ELEMENT_BYTES[problem.dtype]
    products, columns = block.matrix_products, block.columns
    warpgroups = family.instruction == "best" and gpu.compute_capability in MMA_SYNC_SHARE
    rows_per_reading = WARPGROUP_ROWS if warpgroups else WARP_ROWS
    keys_and_values = 2 * columns * width * element
    readings = max(1, rows // rows_per_reading)
    return {
        rate.matrix_unit: 2 * products * rows * columns * width / rate.flops,
        "exp": rows * columns / rate.exp,
        "shared_memory": readings * keys_and_values * products / FORWARD_PRODUCTS / rate.shared_bytes,
        "l2": keys_and_values / rate.l2_bytes,
    }


def _blocks_per_sm(gpu: Gpu, problem: Problem, rows: int, columns: int, width: int, warps: int) -> int:
    """Resident blocks of a kernel that takes as many registers as the compiler gives, and holds Q and one
    K and V tile in shared memory."""
    threads, architecture = warps * 32, gpu.architecture
    found = occupancy(
        gpu,
        registers_per_thread=min(architecture.max_registers_per_thread, architecture.registers_per_sm // threads),
        shared_memory_bytes=(rows + 2 * columns) * width * ELEMENT_BYTES[problem.dtype],
        threads_per_block=threads,
    )
    # A tile that does not fit is made smaller by the implementation, not refused.
    return max(1, found.blocks_per_sm)


def unfused_attention(gpu: Gpu, problem: Problem, kernel: str, known: Known) -> Prediction:
    """Two batched matrix products with the score matrix in memory, and the passes over it between them.
    Nothing of a causal mask is skipped."""
    batch = problem.batch * problem.n_head
    scores_bytes = batch * problem.seq_len * problem.kv_len * ELEMENT_BYTES[problem.dtype]
    check_memory(gpu, 2 * scores_bytes)
    product = partial(matmul, gpu, batch=batch, dtype=problem.dtype, known=known)
    scores = product(m=problem.seq_len, n=problem.kv_len, k=problem.head_dim)
    mixed = product(m=problem.seq_len, n=problem.head_dim, k=problem.kv_len)
    passes = 1 + (UNFUSED[kernel] if problem.causal else 0)
    softmax = copy(gpu, 2 * scores_bytes, known)
    launches = [scores, *[softmax] * passes, mixed]
    if problem.direction == "backward":
        # dV, dP, dQ, dK, and the softmax's own gradient, which reads P and dP and writes dS.
        launches = [mixed, scores, mixed, mixed, *[softmax] * (passes + 1)]
    whole = in_sequence(launches, problem.flops("attention"))
    return msgspec.structs.replace(whole, high_us=whole.high_us * WIDENING, outside=(*whole.outside, UNFUSED_CHECK))


def decode_attention(gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    """One new query per sequence: the KV cache is read once, whatever the kernel does with it."""
    read = copy(gpu, problem.min_bytes("attention"), known)
    return msgspec.structs.replace(
        read,
        tflops=problem.flops("attention") / read.time_us / 1e6,
        outside=(*read.outside, "decoding was not validated"),
    )


def copy(gpu: Gpu, moved_bytes: int, known: Known) -> Prediction:
    """A pass over memory that reads and writes moved_bytes together."""
    check_memory(gpu, moved_bytes)
    rate = rates(gpu, "float32")
    parts = {"l2": rate.l2_us(moved_bytes), "dram": rate.dram_us(moved_bytes), "launch": LAUNCH_US}
    bound = Bound(time_us=max(parts.values()), parts_us=parts)
    key = (gpu.compute_capability, "copy", "forward")
    return expect(gpu, bound, find_efficiency(*key, known), key, 0)
