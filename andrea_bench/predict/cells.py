"""The time of one Cell: which launches a Kernel makes for its Op, and what each of them takes."""

from collections.abc import Callable
from functools import partial

from andrea_bench.errors import Unsupported, unknown_name
from andrea_bench.hardware import Gpu, find_gpu
from andrea_bench.predict import projections
from andrea_bench.predict.attention import copy, decode_attention, tiled_attention, unfused_attention
from andrea_bench.predict.efficiency import Known
from andrea_bench.predict.families import DECODE_ONLY, TILED, UNFUSED, chosen_by_torch
from andrea_bench.predict.matrix_product import matmul
from andrea_bench.predict.prediction import Prediction, in_sequence, repeat
from andrea_bench.problem import OPS, Direction, Part, Problem

Predictor = Callable[[Gpu, Problem, Known], Prediction]
PASSES: tuple[Direction, ...] = ("forward", "backward")


def cell(gpu: str | Gpu, problem: Problem, *, op: str, kernel: str, known: Known = None) -> Prediction:
    """Predicted time of one call of `kernel` of `op`, as `sweep` would measure it on `gpu`.

    For the op `layer`, kernel may be that of attention: then it stands between a fused projection and the
    output projection. known: refitted efficiencies (see fit.py). Raises BadInput for unknown names,
    Unsupported for what the GPU or the kernel can't do or the memory can't hold.
    """
    found = find_gpu(gpu)
    if op not in OPS:
        raise unknown_name("op", op, OPS)
    table = _PREDICTED[op]
    if kernel not in table:
        raise unknown_name(f"predicted kernel of {op}", kernel, table)
    if problem.direction != "forward_backward":
        return table[kernel](found, problem, known)
    passes = [table[kernel](found, problem.replace(direction=one), known) for one in PASSES]
    return in_sequence(passes, problem.flops(op, _PARTS.get(kernel)))


def predicted_kernels(op: str) -> list[str]:
    """The kernels of an Op that `cell` knows."""
    return list(_PREDICTED[op])


def _attention(kernel: str, gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    if problem.direction == "decode":
        return decode_attention(gpu, problem, known)
    if kernel in DECODE_ONLY:
        raise Unsupported(f"{kernel} does direction decode, not {problem.direction}")
    if kernel == "sdpa":
        kernel = chosen_by_torch(problem, gpu.compute_capability)
    if kernel in UNFUSED:
        return unfused_attention(gpu, problem, kernel, known)
    return tiled_attention(gpu, problem, TILED[kernel], known)


def _attention_head_loop(gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    """One head after the other, its scores in memory."""
    head = problem.replace(n_head=1, n_kv_head=1, d_model=problem.head_dim)
    return repeat(_attention("eager", gpu, head, known), problem.n_head, problem.flops("attention"))


def _qkv(launches: Callable[[Problem], projections.Launches]) -> Predictor:
    return lambda gpu, problem, known: projections.project(launches(problem), gpu, problem, known)


def _layer(kernel: str, gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    """Fused kernels read and write heads as views; what materialises scores needs the heads copied."""
    copies = kernel not in ("sdpa", *TILED)
    return _stages(gpu, problem, known, projections.fused_qkv, kernel, split=copies, concatenate=copies)


def _stages(
    gpu: Gpu,
    problem: Problem,
    known: Known,
    launches: Callable[[Problem], projections.Launches],
    attention: str,
    *,
    split: bool,
    concatenate: bool | None,
) -> Prediction:
    """A layer of a projection, attention and an output projection (concatenate None: one product per head)."""
    parts = [projections.project(launches(problem), gpu, problem, known)]
    if split:
        parts.append(_split_heads(gpu, problem, known))
    parts.append(_PREDICTED["attention"][attention](gpu, problem, known))
    if concatenate is None:
        parts.append(projections.per_head_sum(gpu, problem, known))
    else:
        parts.append(projections.output(gpu, problem, known, concatenate=concatenate))
    return in_sequence(parts, problem.flops("layer"))


def _split_heads(gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    return copy(gpu, problem.min_bytes("layout", "copy"), known)


def _scores(copied: bool, gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    """Q K^T of all heads; backward two products. copied: after the copies of Q and K."""
    m, n, k, batch = problem.seq_len, problem.kv_len, problem.head_dim, problem.batch * problem.n_head
    sizes = [(m, k, n), (n, k, m)] if problem.direction == "backward" else [(m, n, k)]
    parts = [matmul(gpu, m=a, n=b, k=c, batch=batch, dtype=problem.dtype, known=known) for a, b, c in sizes]
    if copied:
        parts.append(_split_heads(gpu, problem, known))
    return in_sequence(parts, problem.flops("layout", "qk"))


def _layout_attention(copied: bool, gpu: Gpu, problem: Problem, known: Known) -> Prediction:
    parts = [_PREDICTED["attention"]["sdpa"](gpu, problem, known)]
    if copied:
        parts.append(_split_heads(gpu, problem, known))
    return in_sequence(parts, problem.flops("attention"))


_ATTENTION: dict[str, Predictor] = {
    "per_head_loop": _attention_head_loop,
    **{name: partial(_attention, name) for name in ("sdpa", *TILED, *UNFUSED, *DECODE_ONLY)},
}
_FIVE_STEPS: dict[str, Predictor] = {
    "five_steps": partial(_stages, launches=projections.fused_qkv, attention="sdpa", split=True, concatenate=True),
    "five_steps_strided": partial(
        _stages, launches=projections.fused_qkv, attention="sdpa", split=False, concatenate=False
    ),
    "five_steps_per_head": partial(
        _stages, launches=projections.per_head_loop, attention="sdpa", split=True, concatenate=None
    ),
}
_PREDICTED: dict[str, dict[str, Predictor]] = {
    "qkv_projection": {
        "fused_qkv": _qkv(projections.fused_qkv),
        "fused_each": _qkv(projections.fused_each),
        "per_head_loop": _qkv(projections.per_head_loop),
        "per_head_batched": _qkv(projections.per_head_batched),
        "triton_fused_qkv": _qkv(projections.fused_qkv),
        "triton_per_head_projection": _qkv(projections.per_head_grid),
    },
    "attention": _ATTENTION,
    "output_projection": {
        "concat_matmul": partial(projections.output, concatenate=True),
        "einsum": partial(projections.output, concatenate=True),
        "strided_matmul": partial(projections.output, concatenate=False),
        "per_head_sum": projections.per_head_sum,
        "triton_output_projection": partial(projections.output, concatenate=False),
    },
    "layout": {
        "split_heads": _split_heads,
        "qk_strided": partial(_scores, False),
        "qk_contiguous": partial(_scores, False),
        "qk_copy_then_contiguous": partial(_scores, True),
        "attention_strided": partial(_layout_attention, False),
        "attention_contiguous": partial(_layout_attention, False),
        "attention_copy_then_contiguous": partial(_layout_attention, True),
    },
    "layer": {**_FIVE_STEPS, **{name: partial(_layer, name) for name in _ATTENTION}},
}
# What of the op `layout` a kernel runs; Q K^T where it says nothing.
_PARTS: dict[str, Part] = {
    "split_heads": "copy",
    "attention_strided": "attention",
    "attention_contiguous": "attention",
    "attention_copy_then_contiguous": "attention",
}
