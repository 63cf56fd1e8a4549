"""The rules of arXiv 2401.14489 ("Co-Designing Model Architectures with Hardware"), each put to the test.

The rules as its co-author restates them (ml-engineering, training/performance/README.md); the published figures
are of an A100, recomputed from the sweeps that lay in EleutherAI/cookbook 27dff48 under sizing/: the slowest of
200 runs by a host timer for matrix products, so that small ones there are bound by the launch. The model's A100
efficiencies were fitted on two of these sweeps; what it says of an A100 is no independent check.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from andrea_bench.claims.finding import Claim, Evidence, Outcome, claim
from andrea_bench.claims.measured import NO_GAIN, dtype_of
from andrea_bench.errors import BadInput, Unsupported
from andrea_bench.explore.splits import of_one_gpu
from andrea_bench.hardware import Gpu
from andrea_bench.predict import Prediction, cell, matmul, ratio
from andrea_bench.problem import Problem

PAPER = "2401.14489"
SOURCE = "EleutherAI/cookbook 27dff48, sizing/results (arXiv 2401.14489), A100, float16"
RULES = {
    "vocabulary": "the vocabulary is a multiple of 64",
    "micro-batch": "the micro-batch is as large as possible",
    "head-dim": "head_dim is a multiple of as large a power of two as possible, up to 64",
    "heads-divide": "(batch x heads) / tensor parallelism is whole",
    "tensor-parallel": "tensor parallelism is as small as possible",
    "swiglu": "the width of a SwiGLU MLP is searched near 8/3 of d_model, as 8/3 itself may be a bad one",
    "fewer-heads": "head_dim is as large as accuracy allows, so heads are few",
}
# TFLOP/s by the largest power of two that divides the size.
PUBLISHED_VOCABULARY = {1: 74.2, 2: 138.5, 4: 140.0, 8: 226.0, 16: 245.0, 64: 255.6}
PUBLISHED_SCORES = {1: 32.1, 2: 57.3, 4: 57.4, 8: 81.0, 16: 87.4, 32: 95.3}
PUBLISHED_FLASH = {1: 182.0, 2: 178.0, 4: 185.0, 8: 203.0, 16: 213.0, 32: 217.0}
SWIGLU_SOURCE = "ml-engineering, training/performance/README.md: H100, d_ff 10922 at 273, 10944 at 398 TFLOP/s"
# What the conditions below say in numbers.
CONDITIONS = {"vocabulary": {"columns_multiple_of": [64, 8], "row_bytes": 16}}
NEEDS = "a GPU of the catalogue (--gpu), or this machine with nothing else at work (--measure)"


def codesign(gpus: Sequence[Gpu], measured: Mapping[str, Sequence[Evidence]] = {}) -> list[Claim]:
    """Each rule with its finding on these GPUs. measured: what a machine says of them, by rule (see sweeps.py)."""
    by_gpu: dict[str, list[Evidence]] = {name: list(measured.get(name, ())) for name in RULES}
    for gpu in gpus:
        for name, test in _TESTS.items():
            try:
                by_gpu[name] += test(gpu)
            except Unsupported as error:
                by_gpu[name].append(
                    Evidence(on=gpu.name, how="predicted", finding="not_testable_here", text=str(error))
                )
    by_gpu["vocabulary"].append(_published("vocabulary 51136 to 51264", PUBLISHED_VOCABULARY, 64))
    by_gpu["head-dim"] += [
        _published("unfused Q K^T, head_dim 64 to 127", PUBLISHED_SCORES, 32),
        _published("flash attention, head_dim 64 to 127", PUBLISHED_FLASH, 32),
    ]
    by_gpu["heads-divide"].append(_heads_divide())
    by_gpu["swiglu"].append(
        Evidence(on="h100, d_ff 10944 over 10922", how="published", finding="holds", source=SWIGLU_SOURCE,
                 text="398 instead of 273 TFLOP/s", numbers={"tflops": {"10922": 273, "10944": 398}})
    )  # fmt: skip
    depends = {
        "vocabulary": "what 64 is compared with: rows of whole 16 bytes (multiples of 8) give most of it",
        "micro-batch": "how many tokens there are already: see from where on it gains nothing",
        "head-dim": "the kernel: flash attention computes a fixed width, so the cliffs are where that grows",
        "fewer-heads": "the device, and from which head_dim on",
    }
    return [
        claim(name, evidence, statement=RULES[name], needs=NEEDS,
              depends_on=depends.get(name, "the device and the size: see each line"), numbers=CONDITIONS.get(name))
        for name, evidence in by_gpu.items()
    ]  # fmt: skip


def _published(what: str, tflops: dict[int, float], best: int) -> Evidence:
    gain, of_8 = tflops[best] / tflops[1], tflops[best] / tflops[8]
    return Evidence(
        on=f"a100, {what}",
        how="published",
        finding="holds" if of_8 > 1.1 else "depends" if gain > 1.1 else "fails",
        text=f"multiples of {best} reach {gain:.2f} of the rate of odd sizes and {of_8:.2f} of that of multiples of 8",
        numbers={"tflops_by_power_of_two": {str(k): v for k, v in tflops.items()}, "over_odd": gain, "over_8": of_8},
        source=SOURCE,
    )


def _predicted(gpu: Gpu, what: str, one: Prediction, other: Prediction, work: float = 1.0) -> Evidence:
    """Evidence that `one` takes less time than `other` for the same work (`one` does `work` times as much)."""
    over = ratio(one, other)
    value, low, high = (part / work for part in (over.value, over.low, over.high))
    outcome = _outcome(value, low, high)
    sure = {"fails": "" if low > 1 else ", no gain", "not_testable_here": ", which the model can't tell from 1"}
    return Evidence(
        on=f"{gpu.name}, {what}",
        how="predicted",
        finding=outcome,
        text=f"{value:.2f} ({low:.2f} to {high:.2f}) of the time for the same work{sure.get(outcome, '')}",
        numbers={"ratio": value, "low": low, "high": high},
    )


def _outcome(value: float, low: float, high: float) -> Outcome:
    """Of the statement that a ratio is below 1. Where its interval holds 1, a ratio near 1 is no gain; a larger
    difference may be one, and is not decided."""
    if high < 1:
        return "holds"
    return "fails" if low > 1 or abs(value - 1) < NO_GAIN else "not_testable_here"


def _vocabulary(gpu: Gpu) -> list[Evidence]:
    """The output head's product at 51200 columns, against odd ones and multiples of 8."""
    made = {n: matmul(gpu, m=8192, n=n, k=14336, dtype=dtype_of(gpu)) for n in (51199, 51208, 51200)}
    return [_predicted(gpu, f"vocabulary 51200 over {n}", made[51200], made[n], 51200 / n) for n in (51199, 51208)]


def _micro_batch(gpu: Gpu) -> list[Evidence]:
    """A layer of andrea-120m at twice the batch: less time for each sequence?"""
    times = {
        batch: cell(gpu, Problem(batch=batch, d_model=768, n_head=12, dtype=dtype_of(gpu)), op="layer", kernel="sdpa")
        for batch in (1, 2, 4, 8, 16, 32)
    }
    return [
        _predicted(gpu, f"layer of 768, batch {2 * batch} over {batch}", times[2 * batch], times[batch], 2)
        for batch in (1, 2, 4, 8, 16)
    ]


def _head_dim(gpu: Gpu) -> list[Evidence]:
    """For each FLOP of attention: head_dim 64 and 128 against 72, 80, 96 and 100 by flash, 64 against 72 unfused."""

    def time(head_dim: int, kernel: str) -> tuple[Prediction, int]:
        problem = Problem(batch=8, n_head=12, head_dim=head_dim, dtype=dtype_of(gpu), causal=False)
        return cell(gpu, problem, op="attention", kernel=kernel), head_dim

    found = []
    for kernel, good, others in (("sdpa", 64, (72, 80)), ("sdpa", 128, (96, 100)), ("eager", 64, (72, 100))):
        one, width = time(good, kernel)
        for head_dim in others:
            other, wider = time(head_dim, kernel)
            found.append(_predicted(gpu, f"{kernel}, head_dim {good} over {head_dim}", one, other, width / wider))
    return found


def _heads_divide() -> Evidence:
    try:
        of_one_gpu(Problem(d_model=768, n_head=12), 8)
    except BadInput as error:
        return Evidence(on="12 heads on 8 GPUs", how="exact", finding="holds", text=f"can't be split: {error}")
    return Evidence(on="12 heads on 8 GPUs", how="exact", finding="fails", text="can be split")


def _tensor_parallel(gpu: Gpu) -> list[Evidence]:
    """A layer on one GPU against its share on each of t, whose times add up; communication not counted, which
    only speaks for the rule."""
    whole = Problem(batch=8, d_model=4096, n_head=32, dtype=dtype_of(gpu))
    one = cell(gpu, whole, op="layer", kernel="sdpa")
    return [
        _predicted(gpu, f"layer of 4096 on 1 GPU over {t}, in GPU time", one,
                   cell(gpu, of_one_gpu(whole, t), op="layer", kernel="sdpa"), t)
        for t in (2, 4, 8)
    ]  # fmt: skip


def _swiglu(gpu: Gpu) -> list[Evidence]:
    """d_model 4096: 8/3 of it is 10922, near it lie 10944 (of 64) and 11008 (of 256)."""
    made = {n: matmul(gpu, m=8192, n=n, k=4096, dtype=dtype_of(gpu)) for n in (10922, 10944, 11008)}
    return [_predicted(gpu, f"d_ff {n} over 10922", made[n], made[10922], n / 10922) for n in (10944, 11008)]


def _fewer_heads(gpu: Gpu) -> list[Evidence]:
    """Attention of one width with twice as wide heads."""

    def time(head_dim: int) -> Prediction:
        problem = Problem(batch=8, d_model=2048, head_dim=head_dim, dtype=dtype_of(gpu))
        return cell(gpu, problem, op="attention", kernel="sdpa")

    return [_predicted(gpu, f"width 2048, head_dim {2 * d} over {d}", time(2 * d), time(d)) for d in (16, 32, 64, 128)]


_TESTS: dict[str, Any] = {
    "vocabulary": _vocabulary,
    "micro-batch": _micro_batch,
    "head-dim": _head_dim,
    "tensor-parallel": _tensor_parallel,
    "swiglu": _swiglu,
    "fewer-heads": _fewer_heads,
}
