"""Correct before fast: a kernel's outputs, and gradients, against float64, before anything is timed.

The tolerance is not a fixed number: it is twice the error that plain torch makes in the same dtype on the
same inputs, plus a floor. So a kernel may be as inexact as torch, in any dtype and at any size, and no more.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from andrea_bench.measure import reference
from andrea_bench.measure.inputs import detached, output_gradients
from andrea_bench.problem import Problem

# The floor of the tolerance, in units of the dtype's epsilon. Where torch happens to be exact (one key,
# sums of few terms) twice its error is nothing, yet rounding a result once already costs half an epsilon;
# four leave room for a rounded intermediate (the weights P, rounded before P V) on top.
FLOOR_EPSILONS = 4.0
# float32 products in tf32 carry 10 bits of mantissa.
TF32_EPSILON = 2.0**-10


@dataclass
class Expected:
    """What a Group's kernels of one Op are compared with.

    outputs: float64, whole or at the query positions `rows`. gradients: of the Op's inputs in their order,
    whole or of the (sequence, KV head) pairs `heads` alone (attention); None where not compared.
    tolerance: on the relative error. covers: in words, for the Record.
    """

    outputs: tuple[Tensor, ...]
    gradients: tuple[Tensor, ...] | None
    rows: Tensor | None
    heads: list[tuple[int, int]] | None
    covers: str
    tolerance: float = 0.0

    def wrong_shape(self, outputs: tuple[Tensor, ...]) -> str | None:
        """How outputs differ from the Op's in number or shape; None where they don't."""
        if len(outputs) != len(self.outputs):
            return f"{len(outputs)} output tensors, not {len(self.outputs)}"
        for got, wanted in zip(outputs, self.outputs, strict=True):
            shape = list(wanted.shape)
            if self.rows is not None:
                shape[-2] = got.shape[-2] if got.dim() == wanted.dim() else shape[-2]
            if list(got.shape) != shape:
                return f"an output of shape {tuple(got.shape)}, not {tuple(shape)}"
        return None

    def error(self, outputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...] | None) -> float:
        """The largest relative error of a kernel's (whole) outputs and gradients."""
        if self.rows is not None:
            outputs = tuple(o.index_select(o.dim() - 2, self.rows) for o in outputs)
        if self.heads is not None and gradients is not None:
            gradients = _of_heads(gradients, self.heads)
        return self.error_of_part(outputs, gradients)

    def error_of_part(self, outputs: tuple[Tensor, ...], gradients: tuple[Tensor, ...] | None) -> float:
        """The same for outputs and gradients that cover no more than the reference does."""
        pairs = list(zip(outputs, self.outputs, strict=True))
        if self.gradients is not None and gradients is not None:
            pairs += list(zip(gradients, self.gradients, strict=True))
        return max(reference.relative_error(mine, theirs) for mine, theirs in pairs)


def expect(op: str, part: str | None, problem: Problem, inputs: Mapping[str, Tensor], *, seed: int) -> Expected:
    """Compute the reference of `op` and its tolerance.

    Whole up to 2**24 scores. Above, outputs are compared at a seeded sample of query rows (first, last and
    tile edges among them), attention's gradients for the first and the last (sequence, KV head), and the
    gradients of `layer` and `layout` not at all; `covers` says which.
    """
    scores = problem.batch * problem.n_head * problem.seq_len * problem.kv_len
    attends = op in ("attention", "layer", "layout") and part != "copy"
    device = next(iter(inputs.values())).device
    rows = heads = None
    covers = "whole"
    if attends and scores > reference.WHOLE_REFERENCE_SCORES:
        rows = reference.sample_rows(problem.seq_len, seed).to(device)
        covers = f"{len(rows)} of {problem.seq_len} query rows (seed {seed})"
    with_gradients = problem.direction in ("backward", "forward_backward")
    if with_gradients and rows is not None and op == "attention":
        heads = sorted({(0, 0), (problem.batch - 1, problem.n_kv_head - 1)})
        covers += f", gradients of {len(heads)} KV heads"
    elif with_gradients and rows is not None:
        with_gradients = False
        covers += ", gradients not at this size"

    in_double = {name: t.double() for name, t in inputs.items()}
    expected = Expected(
        *_outputs_and_gradients(op, part, problem, in_double, inputs, rows, heads, with_gradients, seed),
        rows, heads, covers,
    )  # fmt: skip
    plain = _outputs_and_gradients(op, part, problem, inputs, inputs, rows, heads, with_gradients, seed)
    expected.tolerance = 2 * expected.error_of_part(*plain) + FLOOR_EPSILONS * _epsilon(problem)
    return expected


def _outputs_and_gradients(
    op: str,
    part: str | None,
    problem: Problem,
    tensors: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    rows: Tensor | None,
    heads: list[tuple[int, int]] | None,
    with_gradients: bool,
    seed: int,
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
    """Outputs and gradients of plain torch on `tensors` (the `inputs`, or those in float64)."""
    if not with_gradients or heads is not None:
        with torch.no_grad():
            outputs = _plain(op, part, problem, tensors, rows)
        if heads is None:
            return outputs, None
        return outputs, _head_gradients(problem, tensors, inputs["q"], heads, seed)
    leaves = detached(tensors)
    outputs = _plain(op, part, problem, leaves, rows)
    dtype = next(iter(inputs.values())).dtype
    upstream = output_gradients(tuple(o.detach().to(dtype) for o in outputs), seed=seed)
    as_outputs = [u.to(o.dtype) for u, o in zip(upstream, outputs, strict=True)]
    gradients = torch.autograd.grad(outputs, list(leaves.values()), as_outputs)
    return tuple(o.detach() for o in outputs), gradients


def _head_gradients(
    problem: Problem, tensors: Mapping[str, Tensor], q: Tensor, heads: list[tuple[int, int]], seed: int
) -> tuple[Tensor, ...]:
    """Attention's dQ, dK, dV of some (sequence, KV head) pairs; in float64 over chunks of query rows, to bound
    memory. Not in the dtype itself: shorter sums would make torch look more exact than it is."""
    (upstream,) = output_gradients((q,), seed=seed)
    group = problem.n_head // problem.n_kv_head
    parts: list[Tensor] = []
    for sequence, head in heads:
        queries = slice(head * group, (head + 1) * group)
        q_h = tensors["q"][sequence : sequence + 1, queries].detach()
        k_h, v_h = (tensors[name][sequence : sequence + 1, head : head + 1].detach().requires_grad_() for name in "kv")
        dq, dk, dv = torch.zeros_like(q_h), torch.zeros_like(k_h), torch.zeros_like(v_h)
        chunk = 512 if q_h.dtype == torch.float64 else problem.seq_len
        for rows in torch.arange(problem.seq_len, device=q_h.device).split(chunk):
            leaf = q_h.clone().requires_grad_()
            out = _attention(leaf, k_h, v_h, problem.causal, rows)
            do = upstream[sequence : sequence + 1, queries].index_select(2, rows).to(out.dtype)
            for total, more in zip((dq, dk, dv), torch.autograd.grad(out, (leaf, k_h, v_h), do), strict=True):
                total += more
        parts += [dq, dk, dv]
    return tuple(parts)


def _of_heads(gradients: tuple[Tensor, ...], heads: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """From whole dQ, dK, dV the parts that _head_gradients computes, in its order."""
    dq, dk, dv = gradients
    group = dq.shape[1] // dk.shape[1]
    parts: list[Tensor] = []
    for b, head in heads:
        parts += [dq[b : b + 1, head * group : (head + 1) * group]]
        parts += [dk[b : b + 1, head : head + 1], dv[b : b + 1, head : head + 1]]
    return tuple(parts)


def _epsilon(problem: Problem) -> float:
    if problem.dtype == "tf32":
        return TF32_EPSILON
    return torch.finfo(getattr(torch, problem.dtype)).eps


def _plain(
    op: str, part: str | None, problem: Problem, tensors: Mapping[str, Tensor], rows: Tensor | None
) -> tuple[Tensor, ...]:
    """The Op by plain torch, in the dtype of its tensors; for some query rows only where `rows` is given."""
    sizes = {"n_head": problem.n_head, "n_kv_head": problem.n_kv_head, "head_dim": problem.head_dim}
    if op == "qkv_projection":
        return reference.split_heads(tensors["x"] @ tensors["w_qkv"], **sizes)
    if op == "output_projection":
        return (tensors["heads"].transpose(1, 2).flatten(2) @ tensors["w_o"],)
    if op == "attention":
        return (_attention(tensors["q"], tensors["k"], tensors["v"], problem.causal, rows),)
    if op == "layout":
        q, k, v = reference.split_heads(tensors["qkv"], **sizes)
        if part == "copy":
            return q, k, v
        if part == "attention":
            return (_attention(q, k, v, problem.causal, rows),)
        queries = q if rows is None else q.index_select(2, rows)
        return (queries @ k.repeat_interleave(problem.n_head // problem.n_kv_head, dim=1).transpose(-1, -2),)
    q, k, v = reference.split_heads(tensors["x"] @ tensors["w_qkv"], **sizes)
    heads = _attention(q, k, v, problem.causal, rows)
    return (heads.transpose(1, 2).flatten(2) @ tensors["w_o"],)


def _attention(q: Tensor, k: Tensor, v: Tensor, causal: bool, rows: Tensor | None) -> Tensor:
    """Plain attention in the dtype of q; in float64 it is the reference itself."""
    if q.dtype == torch.float64:
        every = torch.arange(q.shape[2], device=q.device) if rows is None else rows
        return reference.attention_rows(q, k, v, every, causal=causal)
    seq_len, kv_len = q.shape[2], k.shape[2]
    queries = q if rows is None else q.index_select(2, rows)
    mask = None
    if causal:
        at = torch.arange(seq_len, device=q.device) if rows is None else rows
        mask = torch.arange(kv_len, device=q.device)[None, :] <= at[:, None] + (kv_len - seq_len)
    group = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    out = torch.nn.functional.scaled_dot_product_attention(queries, k, v, attn_mask=mask)
    # Rows without keys: 0 by convention, whatever this torch answers.
    return out if mask is None else torch.where(mask.any(-1)[:, None], out, torch.zeros_like(out))
