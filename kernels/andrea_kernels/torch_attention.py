"""Attention written out in torch: scores, softmax, weighted sum; per head, batched, and compiled.

The idea and its source: the formula as it stands (Attention Is All You Need, arXiv 1706.03762, equation 1). Causal is
aligned bottom-right: the last query sees every key. A query that sees no key gives 0.

What it trades: easy to read and to check, but the scores, seq_len x kv_len for each head, go through memory
(per_head_loop: those of one head at a time). Known limits: long sequences run out of memory; no dropout, bias or
window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.compiling import check_compiler, compile_exactly
from andrea_kernels.heads import leaf

if TYPE_CHECKING:
    from torch import Tensor

# First shape with nothing cached, on 2 CPU cores (14 s seen, 4 of them once a machine); others take 2 s.
COMPILE_SECONDS = 12.0


def hidden_keys(problem: Problem, device: Any) -> Tensor | None:
    """(seq_len, kv_len), true where the causal mask hides the key from the query; None where it hides none."""
    import torch

    if not problem.causal or problem.seq_len == 1:
        return None
    last_seen = torch.arange(problem.seq_len, device=device) + (problem.kv_len - problem.seq_len)
    return torch.arange(problem.kv_len, device=device) > last_seen[:, None]


def attend(q: Tensor, k: Tensor, v: Tensor, hidden: Tensor | None, *, keyless: bool = False) -> Tensor:
    """softmax(Q K^T / sqrt(head_dim)) V with the scores held in memory.

    q (batch, n_head, seq_len, head_dim), k and v (batch, n_kv_head, kv_len, head_dim); returns the shape of
    q. hidden: as hidden_keys makes it. keyless: whether it hides every key from some query, which then
    gives 0. Query heads that share a KV head are stacked as rows of one matrix (GQA without repeating K, V).
    """
    batch, n_kv_head, kv_len, head_dim = k.shape
    rows = (q * head_dim**-0.5).reshape(batch, n_kv_head, -1, head_dim)
    scores = (rows @ k.transpose(-1, -2)).view(*q.shape[:-1], kv_len)
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    weights = scores.softmax(dim=-1)
    if keyless and hidden is not None:
        # The softmax of a row without keys is NaN.
        weights = weights.masked_fill(hidden, 0.0)
    return (weights.view(batch, n_kv_head, -1, kv_len) @ v).view(q.shape)


def _has_keyless_rows(problem: Problem) -> bool:
    return problem.causal and problem.kv_len < problem.seq_len


def _has_gradients(problem: Problem) -> bool:
    return problem.direction in ("backward", "forward_backward")


def _one_score_matrix_bytes(problem: Problem) -> int:
    return problem.batch * problem.n_head * problem.seq_len * problem.kv_len * ELEMENT_BYTES[problem.dtype]


def _score_bytes(problem: Problem) -> int:
    """Scores and weights at once (a third where rows without keys are masked; backward: the weights and two
    gradients), the mask, and the scaled queries."""
    matrices = 2 + _has_keyless_rows(problem) + _has_gradients(problem)
    queries = problem.batch * problem.n_head * problem.seq_len * problem.head_dim * ELEMENT_BYTES[problem.dtype]
    mask = problem.seq_len * problem.kv_len if problem.causal else 0
    return matrices * _one_score_matrix_bytes(problem) + 2 * queries + mask


def _one_head_score_bytes(problem: Problem) -> int:
    """One head's scores at a time, and a copy of the inputs; backward has saved every head's weights."""
    one_head = problem.replace(n_head=1, n_kv_head=1)
    saved = (1 + _has_keyless_rows(problem)) * _has_gradients(problem) * _one_score_matrix_bytes(problem)
    rows = problem.n_head * problem.seq_len + 2 * problem.n_kv_head * problem.kv_len
    copies = problem.batch * rows * problem.head_dim * ELEMENT_BYTES[problem.dtype]
    return _score_bytes(one_head) + saved + copies


def _compiled_bytes(problem: Problem) -> int:
    """Inductor holds scores in float32 whatever the dtype."""
    return _score_bytes(problem.replace(dtype="float32"))


@kernel("attention", workspace_bytes=_one_head_score_bytes)
def per_head_loop(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Attention one head after another, in a loop, with the scores of one head in memory.

    Each head of q, k, v is a contiguous (batch, seq_len, head_dim) of its own; the outputs are as many,
    not put together.
    """
    import torch

    per_input = [
        [leaf(head.contiguous(), inputs[name]) for head in inputs[name].detach().split(1, dim=1)]
        for name in ("q", "k", "v")
    ]
    q, k, v = per_input
    hidden = hidden_keys(problem, inputs["q"].device)
    keyless = _has_keyless_rows(problem)
    group = problem.n_head // problem.n_kv_head

    def run() -> list[Tensor]:
        return [attend(q[h], k[h // group], v[h // group], hidden, keyless=keyless) for h in range(problem.n_head)]

    def canonical_gradients(gradients: Sequence[Tensor]) -> tuple[Tensor, ...]:
        counts = (problem.n_head, problem.n_kv_head, problem.n_kv_head)
        first_k, first_v = counts[0], counts[0] + counts[1]
        parts = gradients[:first_k], gradients[first_k:first_v], gradients[first_v:]
        return tuple(torch.cat(list(part), dim=1) for part in parts)

    return Work(run, lambda heads: (torch.cat(list(heads), dim=1),), [*q, *k, *v], canonical_gradients)


@kernel("attention", workspace_bytes=_score_bytes)
def eager(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Attention over all heads at once as plain torch operations, with all scores in memory."""
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    hidden = hidden_keys(problem, q.device)
    keyless = _has_keyless_rows(problem)
    return Work(run=lambda: attend(q, k, v, hidden, keyless=keyless))


@kernel("attention", check=check_compiler, workspace_bytes=_compiled_bytes, compile_seconds=COMPILE_SECONDS)
def compiled(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """torch.compile of the kernel eager, for this one shape.

    Inductor may recognise the pattern and call scaled_dot_product_attention instead of fusing it; which
    kernel ran is recorded.
    """
    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    hidden = hidden_keys(problem, q.device)
    keyless = _has_keyless_rows(problem)
    attend_compiled = compile_exactly(attend)
    return Work(run=lambda: attend_compiled(q, k, v, hidden, keyless=keyless))
