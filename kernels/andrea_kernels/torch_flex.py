"""torch's flex_attention, compiled: a fused kernel that torch generates for the mask at hand.

The source: FlexAttention (Dong, Feng, Guessous, Liang, He 2024, arXiv 2412.05496); its template is Triton on a GPU, C++
on a CPU. What it trades: any mask as a plain function, for compiling anew for each shape. Known limits: no backward
pass on a CPU; on a GPU head_dim of 16 or more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.compiling import check_compiler, compile_exactly

if TYPE_CHECKING:
    from torch import Tensor

# One shape, on 2 CPU cores: 4 s seen beside the kernel compiled, 16 s where nothing was compiled before.
COMPILE_SECONDS = 5.0
# torch/_inductor refuses less on a GPU ("embedding dimension ... must be at least 16").
LEAST_GPU_HEAD_DIM = 16
# Block masks are made in blocks of this many queries and keys (BlockMask's default).
MASK_BLOCK = 128


def _check(problem: Problem, device: str) -> str | None:
    if device == "cpu" and problem.direction not in ("forward", "decode"):
        return f"flex_attention on a CPU has no backward pass, so no direction {problem.direction}"
    if device == "cuda" and problem.head_dim < LEAST_GPU_HEAD_DIM:
        return f"flex_attention needs head_dim of at least {LEAST_GPU_HEAD_DIM}, not {problem.head_dim}"
    return check_compiler(problem, device)


def _workspace_bytes(problem: Problem) -> int:
    """The block mask's indices (four int32 tables, and the mask they are made from), log-sum-exp per row,
    and in backward a float32 copy of the gradients."""
    blocks = -(-problem.seq_len // MASK_BLOCK) * -(-problem.kv_len // MASK_BLOCK)
    rows = problem.batch * problem.n_head * problem.seq_len
    held = blocks * (4 * 4 + MASK_BLOCK**2) + 4 * rows
    if problem.direction in ("backward", "forward_backward"):
        held += 4 * problem.batch * problem.n_head * (problem.seq_len + 2 * problem.kv_len) * problem.head_dim
    return held + rows * problem.head_dim * ELEMENT_BYTES[problem.dtype]


@kernel("attention", check=_check, workspace_bytes=_workspace_bytes, compile_seconds=COMPILE_SECONDS)
def flex(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """torch.compile of flex_attention with a causal block mask, for this one shape.

    The block mask is made outside the launch. On a CPU there is no backward pass.
    """
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    block_mask = None
    if problem.causal and problem.seq_len > 1:
        offset = problem.kv_len - problem.seq_len

        def bottom_right(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return key <= query + offset

        block_mask = create_block_mask(
            bottom_right, None, None, problem.seq_len, problem.kv_len, device=q.device.type, BLOCK_SIZE=MASK_BLOCK
        )
    attend = compile_exactly(flex_attention)
    shared = problem.n_kv_head != problem.n_head
    return Work(run=lambda: attend(q, k, v, block_mask=block_mask, enable_gqa=shared))
