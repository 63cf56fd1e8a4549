"""The statement about one launch for all heads: how many blocks it has for how many SMs, on every GPU."""

from collections.abc import Sequence
from math import ceil
from typing import Any

from andrea_bench.claims.finding import Claim, Evidence, claim
from andrea_bench.claims.machine import Measured
from andrea_bench.claims.measured import NEEDS_RUN, NO_GAIN, all_faster, compared, dtype_of, not_slower
from andrea_bench.errors import Unsupported
from andrea_bench.hardware import Gpu, gpus
from andrea_bench.predict import cell, ratio
from andrea_bench.problem import Problem

N_HEAD, HEAD_DIM, SEQ_LEN, QUERY_TILE = 12, 64, 1024, 128
BATCHES = (1, 8, 32)


def one_kernel_many_heads(groups: Sequence[Measured]) -> Claim:
    """One block per (batch, head) against one per (batch, head, query tile) on every GPU of the catalogue, by
    their number of SMs and by the model; the head loop against one launch as measured here."""
    evidence = [_grid(gpu, batch) for gpu in gpus().values() for batch in BATCHES if gpu.sm_count]
    smallest = min(ceil(gpu.sm_count / N_HEAD) for gpu in gpus().values() if gpu.sm_count)
    largest = max(ceil(gpu.sm_count / N_HEAD) for gpu in gpus().values() if gpu.sm_count)
    depends = (
        f"batch and SM count: with {N_HEAD} heads one block per (batch, head) gives every SM work from batch "
        f"{smallest} (fewest SMs) to {largest} (most SMs) on; the query-tiled grid from batch "
        f"{ceil(smallest * QUERY_TILE / SEQ_LEN)} to {ceil(largest * QUERY_TILE / SEQ_LEN)}"
    )
    loops = all_faster(groups, "attention", "eager", "per_head_loop", "attention over all heads at once")
    numbers = {
        "n_head": N_HEAD, "query_tile": QUERY_TILE, "batch_fewest_sms": smallest, "batch_most_sms": largest,
        "tiled_batch_fewest_sms": ceil(smallest * QUERY_TILE / SEQ_LEN),
        "tiled_batch_most_sms": ceil(largest * QUERY_TILE / SEQ_LEN),
    }  # fmt: skip
    return claim("one-kernel-many-heads", [*loops, *_measured(groups), *evidence], depends_on=depends,
                 needs=NEEDS_RUN, numbers=numbers)  # fmt: skip


def _measured(groups: Sequence[Measured]) -> list[Evidence]:
    """One block per (batch, head) against the tiled grid on this GPU; the statement fails where it is surely
    slower."""
    found = []
    for group in groups:
        over = compared(group, "triton_per_head_block", "triton_exact") if group.suite == "attention" else None
        if over is None:
            continue
        outcome, sure = not_slower(over.low, over.high)
        found.append(
            Evidence(
                on=group.on,
                how="measured",
                finding=outcome,
                text=f"one block per (batch, head) takes {over.ratio:.2f} ({over.low:.2f} to {over.high:.2f}) of the "
                f"tiled grid's time: {sure}",
                numbers={"ratio": over.ratio, "low": over.low, "high": over.high, "problem": group.problem,
                         "no_gain": NO_GAIN},
            )
        )  # fmt: skip
    return found


def _grid(gpu: Gpu, batch: int) -> Evidence:
    assert gpu.sm_count is not None
    per_head = batch * N_HEAD
    tiled = per_head * ceil(SEQ_LEN / QUERY_TILE)
    idle, idle_tiled = (max(0, gpu.sm_count - blocks) for blocks in (per_head, tiled))
    numbers: dict[str, Any] = {"sm_count": gpu.sm_count, "query_tile": QUERY_TILE,
               "blocks": per_head, "waves": per_head / gpu.sm_count, "idle_sms": idle,
               "tiled_blocks": tiled, "tiled_waves": tiled / gpu.sm_count, "tiled_idle_sms": idle_tiled}  # fmt: skip
    text = (
        f"{per_head} blocks for {gpu.sm_count} SMs: {per_head / gpu.sm_count:.2f} waves, {idle} SMs idle; in query "
        f"tiles of {QUERY_TILE} {tiled} blocks, {tiled / gpu.sm_count:.2f} waves, {idle_tiled} idle"
    )
    problem = Problem(batch=batch, seq_len=SEQ_LEN, n_head=N_HEAD, head_dim=HEAD_DIM, dtype=dtype_of(gpu))
    try:
        one, other = (
            cell(gpu, problem, op="attention", kernel=name) for name in ("triton_per_head_block", "triton_exact")
        )
        over = ratio(one, other)
        numbers |= {"time_ratio": over.value, "low": over.low, "high": over.high}
        text += f"; predicted {over.value:.2f} ({over.low:.2f} to {over.high:.2f}) of the tiled grid's time"
    except Unsupported as error:
        numbers["reason"] = str(error)
        text += f"; no time predicted: {error}"
    return Evidence(
        on=f"{gpu.name}, batch {batch}, seq_len {SEQ_LEN}, {N_HEAD} x {HEAD_DIM}",
        how="predicted",
        finding="holds" if idle == 0 else "fails",
        text=text,
        numbers=numbers,
    )
