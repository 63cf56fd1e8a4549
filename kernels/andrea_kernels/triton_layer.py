"""The attention layer in three Triton launches: projections, attention, output projection; no copy between.

Each launch writes its result where the next one reads it, so the five steps need neither the split-and-transpose
copy nor the concatenation. The launches and their sources: projection/device.py (permuting epilogues, as
AITemplate's) and flash/forward.py (FlashAttention-2, arXiv 2307.08691). What it trades: the matrix products are
Triton's, not the vendor library's.

Known limits: self-attention of one X (kv_len equal to seq_len), no biases, norms, dropout or rotary embedding between
the steps; tf32 is not among its dtypes; backward of both projections is torch's matmuls, around a copy of the heads'
gradients. What one of its launches can't do, it can't.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import andrea_kernels
from andrea_bench.kernel import Work, find_kernel, kernel
from andrea_bench.problem import Problem

if TYPE_CHECKING:
    from torch import Tensor

STAGES = (
    ("qkv_projection", "triton_fused_qkv"),
    ("attention", "triton_exact"),
    ("output_projection", "triton_output_projection"),
)


def _check(problem: Problem, device: str) -> str | None:
    if problem.kv_len != problem.seq_len:
        return f"needs kv_len equal to seq_len {problem.seq_len}, not {problem.kv_len}: queries and keys are of one X"
    # What one of the launches can't do, the layer can't.
    reasons = (find_kernel(op, name).unsupported_problem(problem, device) for op, name in STAGES)
    return next((reason for reason in reasons if reason), None)


@kernel(
    "layer", devices=("cuda",), modules=("torch", "triton"), dtypes=("float32", "bfloat16", "float16"),
    directions=("forward", "backward", "forward_backward"), check=_check, compile_seconds=5.0,
)  # fmt: skip
def triton_three_launches(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Fused projection, exact attention and output projection in Triton, each reading what the one before wrote."""
    x, w_qkv, w_o = inputs["x"], inputs["w_qkv"], inputs["w_o"]
    sizes = {"n_head": problem.n_head, "n_kv_head": problem.n_kv_head, "head_dim": problem.head_dim}

    def run() -> Tensor:
        q, k, v = andrea_kernels.qkv_projection(x, w_qkv, **sizes)  # each (batch, heads, seq_len, head_dim)
        heads = andrea_kernels.attention(q, k, v, causal=problem.causal)
        return andrea_kernels.output_projection(heads, w_o)  # (batch, seq_len, d_model)

    return Work(run, backend="triton")
