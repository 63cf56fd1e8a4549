"""The statement about one product for all heads: where it beats a product per head, and how near the peak it comes."""

from collections.abc import Iterable, Sequence

import msgspec

from andrea_bench.claims.finding import Claim, Evidence, Outcome, claim
from andrea_bench.claims.machine import Measured
from andrea_bench.claims.measured import NEEDS_RUN, all_faster, beside, dtype_of
from andrea_bench.errors import Unsupported
from andrea_bench.hardware import Gpu
from andrea_bench.predict import cell, ratio
from andrea_bench.problem import Problem

# Of the GPU's peak; the largest products of libraries reach 0.7 to 0.96 of it (docs/validation.md).
NEAR_PEAK = 0.7


def fused_projection(groups: Sequence[Measured], gpus: Sequence[Gpu]) -> Claim:
    """Where one product of all heads beats a loop over heads, a batched product and three products; and how
    near its peak each GPU comes, as measured or predicted."""
    measured = all_faster(groups, "projection", "fused_qkv", "per_head_loop", "one matmul instead of one per head")
    points = crossover(measured)
    evidence = [_with_peak(one, groups) for one in measured]
    for against, what in (("per_head_batched", "a batched one"), ("fused_each", "three")):
        evidence += beside(all_faster(groups, "projection", "fused_qkv", against, f"one matmul instead of {what}"))
    evidence += [one for gpu in gpus for one in _predicted(gpu)]
    said = [f"{name} surely faster {_where(*(set(found) for found in at.values()))}" for name, at in points.items()]
    where = f"measured: {'; '.join(said)}" if said else "nothing was measured here"
    depends = f"{where}; near peak throughput only with many tokens: see the lines of GPUs"
    return claim("fused-projection", evidence, depends_on=depends, needs=NEEDS_RUN, numbers=points)


def crossover(evidence: Iterable[Evidence]) -> dict[str, dict[str, list[int]]]:
    """For each direction and number of heads, at how many tokens one matmul was surely faster, and at which not."""
    groups: dict[str, dict[str, list[int]]] = {}
    for one in evidence:
        problem: Problem = one.numbers["problem"]
        name = f"{problem.direction} with {problem.n_head} heads"
        group = groups.setdefault(name, {"surely_faster_tokens": [], "not_surely_tokens": []})
        which = "surely_faster_tokens" if one.finding == "holds" else "not_surely_tokens"
        group[which].append(problem.batch * problem.seq_len)
    return groups


def _where(surely: set[int], not_surely: set[int]) -> str:
    """At how many tokens, as one bound where there is one."""
    if not surely:
        return f"at none of {_list(not_surely)} tokens"
    if not not_surely:
        return f"at all of {_list(surely)} tokens"
    if max(surely) < min(not_surely):
        return f"up to {max(surely)} tokens, not from {min(not_surely)} to {max(not_surely)}"
    if min(surely) > max(not_surely):
        return f"from {min(surely)} to {max(surely)} tokens, not up to {max(not_surely)}"
    return f"at {_list(surely)} tokens, not at {_list(not_surely)}"


def _list(tokens: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(tokens)))


def _with_peak(one: Evidence, groups: Sequence[Measured]) -> Evidence:
    """The same with the share of the peak that the fused product reaches, on a GPU of the catalogue."""
    problem: Problem = one.numbers["problem"]
    group = next(g for g in groups if g.suite == "projection" and g.problem == problem and g.on == one.on)
    row = group.row("fused_qkv")
    peak = group.machine.gpu.peak_tflops(problem.dtype) if group.machine.gpu and group.on_gpu else None
    if not peak or row is None or not row.tflops:
        return one
    share = row.tflops / peak
    return msgspec.structs.replace(
        one,
        finding=_both(one.finding, share),
        text=f"{one.text}; reaches {share:.0%} of peak (near peak: {NEAR_PEAK:.0%} and more)",
        numbers={**one.numbers, "share_of_peak": share, "near_peak": NEAR_PEAK},
    )


def _both(outcome: Outcome, share_of_peak: float) -> Outcome:
    """Of both halves of the statement: faster, and near the peak."""
    return "depends" if outcome == "holds" and share_of_peak < NEAR_PEAK else outcome


def _predicted(gpu: Gpu) -> list[Evidence]:
    found = []
    for batch, seq_len in ((1, 128), (1, 1024), (8, 1024)):
        problem = Problem(batch=batch, seq_len=seq_len, d_model=768, n_head=12, dtype=dtype_of(gpu))
        try:
            fused, loop = (
                cell(gpu, problem, op="qkv_projection", kernel=name) for name in ("fused_qkv", "per_head_loop")
            )
        except Unsupported:
            continue
        over = ratio(fused, loop)
        share = fused.tflops / (gpu.peak_tflops(problem.dtype) or float("inf"))
        found.append(
            Evidence(
                on=f"{gpu.name}, {problem.label()}",
                how="predicted",
                finding=_both("holds" if over.high < 1 else "fails", share),
                text=f"one matmul takes {over.value:.2f} ({over.low:.2f} to {over.high:.2f}) of the time of "
                f"{3 * problem.n_head} and reaches {share:.0%} of peak (near peak: {NEAR_PEAK:.0%} and more)",
                numbers={"ratio": over.value, "low": over.low, "high": over.high, "share_of_peak": share,
                         "products": 3 * problem.n_head, "near_peak": NEAR_PEAK},
            )
        )  # fmt: skip
    return found
