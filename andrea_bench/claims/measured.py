"""Statements about time, tested by what a Run measured on this machine, and by the model on absent GPUs."""

from collections.abc import Iterable, Sequence

import msgspec

from andrea_bench.claims.finding import Claim, Evidence, How, Outcome, claim
from andrea_bench.claims.machine import Measured
from andrea_bench.explore.splits import split_label
from andrea_bench.hardware import Gpu
from andrea_bench.predict import cell, ratio
from andrea_bench.problem import Dtype, Problem
from andrea_bench.report.rows import ratio as paired_ratio
from andrea_bench.statistics import Ratio

# A gain below this is no reason to change anything.
NO_GAIN = 0.05
NEEDS_RUN = "a measured Run: leave --grid none away, or name one with --run"


def faster(low: float, high: float) -> tuple[Outcome, str]:
    """Of the statement that a measured ratio of times is below 1, with what to say of it. It fails where a gain of
    NO_GAIN is ruled out; an interval that holds both that and 1 decides nothing."""
    if high < 1:
        return "holds", "surely less"
    if low > 1:
        return "fails", "surely more"
    if low > 1 - NO_GAIN:
        return "fails", f"no sure difference, and no gain of {NO_GAIN:.0%}"
    return "not_testable_here", "too uncertain to tell"


def slower(low: float, high: float) -> tuple[Outcome, str]:
    """Of the statement that a ratio of times is above 1, with what to say of it. It fails where a loss of NO_GAIN is
    ruled out; an interval that holds both that and 1 decides nothing."""
    if low > 1:
        return "holds", "surely more"
    if high < 1:
        return "fails", "surely less"
    if high < 1 + NO_GAIN:
        return "fails", f"at most {NO_GAIN:.0%} more"
    return "not_testable_here", "too uncertain to tell"


def not_slower(low: float, high: float) -> tuple[Outcome, str]:
    """Of the opposite statement."""
    outcome, sure = slower(low, high)
    opposite: dict[Outcome, Outcome] = {"holds": "fails", "fails": "holds"}
    return opposite.get(outcome, outcome), sure


def dtype_of(gpu: Gpu) -> Dtype:
    return "bfloat16" if gpu.bf16_fp32acc_dense_tflops else "float16"


def compared(group: Measured, kernel: str, against: str) -> Ratio | None:
    one, other = group.row(kernel), group.row(against)
    return paired_ratio(one, other) if one and other else None


def evidence_faster(group: Measured, kernel: str, against: str, found: Ratio, what: str) -> Evidence:
    """Measured evidence for: `kernel` takes less time than `against`."""
    outcome, sure = faster(found.low, found.high)
    rows = [row.record.validity for name in (kernel, against) if (row := group.row(name)) is not None]
    doubts = list(dict.fromkeys(reason for validity in rows for reason in validity.reasons))
    sure += f" (doubtful: {'; '.join(doubts)})" if doubts else ""
    return Evidence(
        on=group.on,
        how="measured",
        finding=outcome,
        text=f"{what} takes {found.ratio:.2f} ({found.low:.2f} to {found.high:.2f}) of the time: {sure}",
        numbers={"kernel": kernel, "against": against, "ratio": found.ratio, "low": found.low, "high": found.high,
                 "problem": group.problem, "no_gain": NO_GAIN, "doubts": doubts},
    )  # fmt: skip


def all_faster(groups: Iterable[Measured], suite: str, kernel: str, against: str, what: str) -> list[Evidence]:
    return [
        evidence_faster(group, kernel, against, found, what)
        for group in groups
        if group.suite == suite and (found := compared(group, kernel, against)) is not None
    ]


def beside(evidence: Iterable[Evidence]) -> list[Evidence]:
    """Numbers beside the statement, no test of it."""
    return [
        msgspec.structs.replace(one, finding="not_testable_here", text=f"beside it: {one.text}") for one in evidence
    ]


# ---- contiguous-heads ----------------------------------------------------------------------------------
def contiguous_heads(groups: Sequence[Measured]) -> Claim:
    """Q K^T on contiguous heads against the strided view, without and with the time of the copy; and beside it
    whole attention."""
    evidence = []
    for kernel, what in (
        ("qk_contiguous", "that lie contiguous already"),
        ("qk_copy_then_contiguous", "with the copy"),
    ):
        evidence += all_faster(groups, "layout", kernel, "qk_strided", f"Q K^T on heads {what}")
    for kernel, what in (("attention_contiguous", ""), ("attention_copy_then_contiguous", " with the copy")):
        evidence += beside(all_faster(groups, "layout", kernel, "attention_strided", f"whole attention{what}"))
    depends = "whether the copy is counted, and on size: see each line; another device may say otherwise"
    return claim("contiguous-heads", evidence, depends_on=depends, needs=NEEDS_RUN)


# ---- many-heads-not-one --------------------------------------------------------------------------------
def many_heads(groups: Sequence[Measured], gpus: Sequence[Gpu]) -> Claim:
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
        evidence.append(_narrower(group.machine.name, "measured", group.problem, reference.problem, values))
    evidence.append(
        Evidence(on="quality of a trained model", how="exact", finding="not_testable_here",
                 text="what more heads are good for needs models of each split, trained to the same loss")
    )  # fmt: skip
    depends = "how narrow, and the GPU: see each line; what is narrower than the kernel computes is paid for"
    return claim("many-heads-not-one", evidence, depends_on=depends, needs=NEEDS_RUN)


def _width(problem: Problem) -> int:
    return problem.n_head * problem.head_dim


def _sizes(group: Measured) -> tuple[Problem, str]:
    """All that must be equal between two splits of one width."""
    return group.problem.replace(n_head=1, n_kv_head=1, head_dim=1), group.device


def _narrower(device: str, how: How, one: Problem, widest: Problem, values: tuple[float, float, float]) -> Evidence:
    """Evidence that narrower heads surely cost time (`fails`) or, but for NO_GAIN, surely don't (`holds`)."""
    value, low, high = values
    outcome, sure = not_slower(low, high)
    return Evidence(
        on=f"{device}, {one.label()}",
        how=how,
        finding=outcome,
        text=f"attention of {split_label(one)} takes {value:.2f} ({low:.2f} to {high:.2f}) of the time of "
        f"{split_label(widest)}: {sure}",
        numbers={
            "split": split_label(one),
            "against": split_label(widest),
            "ratio": value,
            "low": low,
            "high": high,
            "no_gain": NO_GAIN,
        },
    )
