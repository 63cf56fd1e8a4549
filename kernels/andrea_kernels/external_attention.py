"""Attention of other packages, where installed: flash_attn, xFormers, FlashInfer.

All three want (batch, seq_len, heads, head_dim); the inputs are laid out so outside the launch. All align
causal bottom-right and share K and V between query heads without repeating them.

The sources: github.com/Dao-AILab/flash-attention, facebookresearch/xformers and flashinfer-ai/flashinfer. What they
trade: kernels tuned by their authors, for packages that are large to build and know some GPUs only. Known limits: a
GPU; 16-bit types but for xFormers; FlashInfer has no backward pass and three values of head_dim.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.heads import leaf

if TYPE_CHECKING:
    from torch import Tensor

HALF = ("bfloat16", "float16")
# Largest head_dim, and the step of head_dim that needs no padded copy (flash_api.cpp of flash_attn 2).
FLASH_ATTN_HEAD_DIM = 256
# FlashInfer compiles itself for a head_dim; its prefill and decode kernels take these.
FLASHINFER_HEAD_DIMS = (64, 128, 256)
FLASHINFER_WORKSPACE_BYTES = 128 * 2**20  # what its documentation advises
XFORMERS_ALIGNMENT_BYTES = 16


def _tokens_first(inputs: Mapping[str, Tensor]) -> list[Tensor]:
    """q, k, v as contiguous (batch, length, heads, head_dim), leaves of their own."""
    return [leaf(inputs[name].detach().transpose(1, 2).contiguous(), inputs[name]) for name in ("q", "k", "v")]


def _heads_first(tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    return tuple(tensor.transpose(1, 2) for tensor in tensors)


def _workspace_bytes(problem: Problem) -> int:
    """The inputs laid out anew, log-sum-exp per row, and in backward float32 gradients of all heads."""
    rows = problem.batch * problem.n_head * problem.seq_len
    keys = problem.batch * problem.n_head * problem.kv_len
    copies = (rows + 2 * keys) * problem.head_dim * ELEMENT_BYTES[problem.dtype]
    backward = problem.direction in ("backward", "forward_backward")
    return copies + 4 * rows + backward * 4 * (rows + 2 * keys) * problem.head_dim


def _check_flash_attn(problem: Problem, device: str) -> str | None:
    if problem.head_dim > FLASH_ATTN_HEAD_DIM:
        return f"flash_attn needs head_dim of at most {FLASH_ATTN_HEAD_DIM}, not {problem.head_dim}"
    return None


@kernel(
    "attention",
    devices=("cuda",),
    dtypes=HALF,
    modules=("torch", "flash_attn"),
    check=_check_flash_attn,
    workspace_bytes=_workspace_bytes,
)
def flash_attn(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """flash_attn_func of the package flash_attn (version 2.1 or newer: bottom-right alignment).

    A head_dim that is no multiple of 8 is padded by the package itself, inside the launch.
    """
    from flash_attn import flash_attn_func

    q, k, v = _tokens_first(inputs)
    return Work(
        run=lambda: flash_attn_func(q, k, v, causal=problem.causal),
        canonical=lambda out: (out.transpose(1, 2),),
        leaves=[q, k, v],
        canonical_gradients=_heads_first,
    )


def _check_xformers(problem: Problem, device: str) -> str | None:
    row = problem.head_dim * ELEMENT_BYTES[problem.dtype]
    if row % XFORMERS_ALIGNMENT_BYTES:
        return (
            f"xFormers needs rows of a multiple of {XFORMERS_ALIGNMENT_BYTES} bytes; "
            f"head_dim {problem.head_dim} makes them {row}"
        )
    if problem.causal and problem.kv_len < problem.seq_len:
        return "xFormers does not define causal rows that see no key (kv_len below seq_len)"
    return None


@kernel(
    "attention",
    devices=("cuda",),
    dtypes=("float32", *HALF),
    modules=("torch", "xformers"),
    check=_check_xformers,
    workspace_bytes=_workspace_bytes,
)
def xformers(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """memory_efficient_attention of xFormers, with the operator that it chooses."""
    from xformers.ops import fmha

    q, k, v = _tokens_first(inputs)
    bias: Any = None
    if problem.causal and problem.seq_len > 1:
        bias = fmha.attn_bias.LowerTriangularFromBottomRightMask()
    group = problem.n_head // problem.n_kv_head

    def run() -> Tensor:
        if group == 1:
            return fmha.memory_efficient_attention(q, k, v, attn_bias=bias)
        # Its form of GQA: (batch, length, KV heads, heads of a group, head_dim), K and V by a stride of 0.
        queries = q.unflatten(2, (-1, group))
        keys, values = (t.unsqueeze(3).expand(-1, -1, -1, group, -1) for t in (k, v))
        return fmha.memory_efficient_attention(queries, keys, values, attn_bias=bias).flatten(2, 3)

    return Work(run, lambda out: (out.transpose(1, 2),), [q, k, v], _heads_first)


def _check_flashinfer(problem: Problem, device: str) -> str | None:
    if problem.head_dim not in FLASHINFER_HEAD_DIMS:
        known = ", ".join(str(size) for size in FLASHINFER_HEAD_DIMS)
        return f"FlashInfer does head_dim {known}, not {problem.head_dim}"
    if problem.causal and problem.kv_len < problem.seq_len:
        return "FlashInfer does not define causal rows that see no key (kv_len below seq_len)"
    return None


@kernel(
    "attention",
    devices=("cuda",),
    dtypes=HALF,
    directions=("forward", "decode"),
    modules=("torch", "flashinfer"),
    check=_check_flashinfer,
    workspace_bytes=lambda problem: _workspace_bytes(problem) + FLASHINFER_WORKSPACE_BYTES,
)
def flashinfer(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """FlashInfer's ragged prefill over all sequences; its schedule is planned outside the launch."""
    import torch
    from flashinfer import BatchPrefillWithRaggedKVCacheWrapper

    q, k, v = (tensor.flatten(0, 1) for tensor in _tokens_first(inputs))
    workspace = torch.empty(FLASHINFER_WORKSPACE_BYTES, dtype=torch.uint8, device=q.device)
    prefill = BatchPrefillWithRaggedKVCacheWrapper(workspace, kv_layout="NHD")
    starts = torch.arange(problem.batch + 1, dtype=torch.int32, device=q.device)
    prefill.plan(
        starts * problem.seq_len,
        starts * problem.kv_len,
        problem.n_head,
        problem.n_kv_head,
        problem.head_dim,
        causal=problem.causal,
        q_data_type=q.dtype,
    )
    return Work(
        run=lambda: prefill.run(q, k, v),
        canonical=lambda out: (out.unflatten(0, (problem.batch, -1)).transpose(1, 2),),
    )
