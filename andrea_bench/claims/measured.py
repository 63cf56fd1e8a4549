"""Statements about time, tested by what a Run measured on this machine, and by the model on absent GPUs."""

from collections.abc import Iterable, Sequence

import msgspec

from andrea_bench.claims.finding import Claim, Evidence, How, Outcome, claim
from andrea_bench.errors import Unsupported
from andrea_bench.explore.splits import split_label
from andrea_bench.hardware import Gpu
from andrea_bench.predict import cell, ratio
from andrea_bench.problem import Dtype, Problem
from andrea_bench.report.rows import GroupRows
from andrea_bench.report.rows import ratio as paired_ratio
from andrea_bench.statistics import Ratio

# Of the GPU's peak; the largest products of libraries reach 0.7 to 0.96 of it (docs/validation.md).
NEAR_PEAK = 0.7
NEEDS_RUN = "a measured Run: leave --grid none away, or name one with --run"


def outcome_below_one(low: float, high: float) -> Outcome | None:
    """Of the statement that a ratio is below 1: None where the interval holds 1."""
    return "holds" if high < 1 else "fails" if low > 1 else None


def _compared(group: GroupRows, kernel: str, against: str) -> Ratio | None:
    one, other = group.row(kernel), group.row(against)
    return paired_ratio(one, other) if one and other else None


def _evidence(group: GroupRows, kernel: str, against: str, found: Ratio, what: str) -> Evidence:
    """Measured evidence for: `kernel` takes less time than `against`."""
    outcome = outcome_below_one(found.low, found.high)
    no_difference = "" if outcome else ", which is no sure difference"
    return Evidence(
        on=f"{group.device}, {group.problem.label()}",
        how="measured",
        finding=outcome or "fails",
        text=f"{what} takes {found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}) of the time{no_difference}",
        numbers={"kernel": kernel, "against": against, "ratio": found.ratio, "low": found.low, "high": found.high,
                 "problem": group.problem},
    )  # fmt: skip


def _all(groups: Iterable[GroupRows], suite: str, kernel: str, against: str, what: str) -> list[Evidence]:
    return [
        _evidence(group, kernel, against, found, what)
        for group in groups
        if group.suite == suite and (found := _compared(group, kernel, against)) is not None
    ]


def _beside(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Numbers beside the statement, no test of it."""
    return [
        msgspec.structs.replace(one, finding="not_testable_here", text=f"beside it: {one.text}") for one in evidence
    ]


# ---- fused-projection ----------------------------------------------------------------------------------
def fused_projection(groups: Sequence[GroupRows], gpus: Sequence[Gpu]) -> Claim:
    """Where one product of all heads beats a loop over heads, a batched product and three products; and how
    near its peak each GPU is predicted to come."""
    evidence = _all(groups, "projection", "fused_qkv", "per_head_loop", "one matmul instead of one per head")
    where = _crossover(evidence) or "nothing was measured here"
    for against, what in (("per_head_batched", "a batched one"), ("fused_each", "three")):
        evidence += _beside(_all(groups, "projection", "fused_qkv", against, f"one matmul instead of {what}"))
    evidence += [one for gpu in gpus for one in _predicted_projection(gpu)]
    depends = f"{where}; near peak throughput only with many tokens: see the predicted lines"
    return claim("fused-projection", evidence, depends_on=depends, needs=NEEDS_RUN)


def _crossover(evidence: Iterable[Evidence]) -> str:
    """For each direction and number of heads, at how many tokens one matmul was surely faster, and at which not."""
    groups: dict[str, dict[bool, list[int]]] = {}
    for one in evidence:
        problem: Problem = one.numbers["problem"]
        group = groups.setdefault(f"{problem.direction} with {problem.n_head} heads", {True: [], False: []})
        group[one.finding == "holds"].append(_tokens(one))
    said = [f"{name} surely faster at {_list(g[True])} tokens, not at {_list(g[False])}" for name, g in groups.items()]
    return f"measured here: {'; '.join(said)}" if said else ""


def _list(tokens: Iterable[int]) -> str:
    return ", ".join(map(str, sorted(set(tokens)))) or "none"


def _tokens(one: Evidence) -> int:
    problem: Problem = one.numbers["problem"]
    return problem.batch * problem.seq_len


def _predicted_projection(gpu: Gpu) -> list[Evidence]:
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
        peak = gpu.peak_tflops(problem.dtype) or 0.0
        share = fused.tflops / peak
        faster = outcome_below_one(over.low, over.high) == "holds"
        found.append(
            Evidence(
                on=f"{gpu.name}, {problem.label()}",
                how="predicted",
                finding="holds" if faster and share >= NEAR_PEAK else "depends" if faster else "fails",
                text=f"one matmul takes {over.value:.2f} ({over.low:.2f} to {over.high:.2f}) of the time of "
                f"{3 * problem.n_head} and reaches {share:.0%} of peak (near peak: {NEAR_PEAK:.0%} and more)",
                numbers={"ratio": over.value, "low": over.low, "high": over.high, "share_of_peak": share},
            )
        )
    return found


def dtype_of(gpu: Gpu) -> Dtype:
    return "bfloat16" if gpu.bf16_fp32acc_dense_tflops else "float16"


# ---- contiguous-heads ----------------------------------------------------------------------------------
def contiguous_heads(groups: Sequence[GroupRows]) -> Claim:
    """Q K^T on contiguous heads against the strided view, without and with the time of the copy; and beside it
    whole attention."""
    evidence = [
        *_all(groups, "layout", "qk_contiguous", "qk_strided", "Q K^T on heads that lie contiguous already"),
        *_all(groups, "layout", "qk_copy_then_contiguous", "qk_strided", "Q K^T with the copy that makes them so"),
    ]
    for kernel, what in (("attention_contiguous", ""), ("attention_copy_then_contiguous", " with the copy")):
        evidence += _beside(_all(groups, "layout", kernel, "attention_strided", f"whole attention{what}"))
    depends = "whether the copy is counted, and on size: see each line; another device may say otherwise"
    return claim("contiguous-heads", evidence, depends_on=depends, needs=NEEDS_RUN)


# ---- many-heads-not-one --------------------------------------------------------------------------------
def many_heads(groups: Sequence[GroupRows], gpus: Sequence[Gpu]) -> Claim:
    """Attention time of the splits of one width, against the one with the widest heads: whether narrower ones
    surely cost time. Their effect on a model's quality needs training."""
    evidence = []
    for gpu in gpus:
        problems = [Problem(batch=8, d_model=768, n_head=n, dtype=dtype_of(gpu)) for n in (48, 24, 16, 12, 6)]
        predicted = [(one, cell(gpu, one, op="attention", kernel="sdpa")) for one in problems]
        widest, of_widest = predicted[-1]
        for problem, found in predicted[:-1]:
            over = ratio(found, of_widest)
            values = (over.value, over.low, over.high)
            evidence.append(_narrower(gpu.name, "predicted", problem, widest, values))
    timed = [g for g in groups if g.suite == "attention" and _width(g.problem) == 768 and g.row("sdpa")]
    for group in timed:
        reference = max((g for g in timed if _sizes(g) == _sizes(group)), key=lambda g: g.problem.head_dim)
        one, other = group.row("sdpa"), reference.row("sdpa")
        if group is reference or one is None or other is None:
            continue
        assert one.median_us and one.low_us and one.high_us and other.median_us and other.low_us and other.high_us
        values = (one.median_us / other.median_us, one.low_us / other.high_us, one.high_us / other.low_us)
        evidence.append(_narrower(group.device, "measured", group.problem, reference.problem, values))
    evidence.append(
        Evidence(on="quality of a trained model", how="exact", finding="not_testable_here",
                 text="what more heads are good for needs models of each split, trained to the same loss")
    )  # fmt: skip
    depends = "how narrow, and the GPU: see each line; what is narrower than the kernel computes is paid for"
    return claim("many-heads-not-one", evidence, depends_on=depends, needs=NEEDS_RUN)


def _width(problem: Problem) -> int:
    return problem.n_head * problem.head_dim


def _sizes(group: GroupRows) -> tuple[Problem, str]:
    """All that must be equal between two splits of one width."""
    return group.problem.replace(n_head=1, n_kv_head=1, head_dim=1), group.device


def _narrower(device: str, how: How, one: Problem, widest: Problem, values: tuple[float, float, float]) -> Evidence:
    """Evidence that narrower heads surely cost time (`fails`) or don't (`holds`)."""
    value, low, high = values
    sure = "" if low > 1 or high < 1 else ", no sure difference"
    return Evidence(
        on=f"{device}, {one.label()}",
        how=how,
        finding="fails" if low > 1 else "holds",
        text=f"attention of {split_label(one)} takes {value:.2f} ({low:.2f} to {high:.2f}) of the time of "
        f"{split_label(widest)}{sure}",
        numbers={"ratio": value, "low": low, "high": high},
    )


# ---- one-kernel-many-heads -----------------------------------------------------------------------------
def head_loop(groups: Sequence[GroupRows]) -> list[Evidence]:
    """All heads at once against a loop over heads, on this machine."""
    return _all(groups, "attention", "eager", "per_head_loop", "attention over all heads at once")
