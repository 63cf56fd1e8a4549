"""Decoding in Triton's interpreter, on CPU tensors; run by test_interpreted.py with TRITON_INTERPRET=1.

The float64 reference is the truth; the tolerance is twice the error of torch's own attention in the same dtype on
the same inputs plus a floor, 4 epsilons of the dtype (measure/check.py says why)."""

import os

import pytest
import torch
from andrea_kernels.triton_decode import decode_attention
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from andrea_bench.kernel import find_kernel
from andrea_bench.measure import reference
from andrea_bench.problem import Problem

HEAD_DIMS = (8, 16, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 160, 192, 224, 256)
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def inputs(batch: int, n_head: int, n_kv_head: int, seq_len: int, kv_len: int, head_dim: int, dtype: torch.dtype,
           seed: int = 0, size: float = 1.0) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    generator = torch.Generator().manual_seed(seed)
    q, k, v = (
        (torch.randn(batch, heads, rows, head_dim, generator=generator) * size).to(DEVICE, dtype)
        for heads, rows in ((n_head, seq_len), (n_kv_head, kv_len), (n_kv_head, kv_len))
    )
    return q, k, v


def torch_attention(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """torch's, with the causal mask aligned bottom-right, and 0 for a query without keys."""
    seq_len, kv_len = q.shape[2], k.shape[2]
    seen = torch.ones(seq_len, kv_len, dtype=torch.bool, device=q.device).tril(kv_len - seq_len) if causal else None
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=seen, enable_gqa=True)
    return out if seen is None else out.where(seen.any(-1)[:, None], 0.0)


def tolerance(q: Tensor, k: Tensor, v: Tensor, truth: Tensor, *, causal: bool) -> float:
    return 2 * reference.relative_error(torch_attention(q, k, v, causal), truth) + 4 * torch.finfo(q.dtype).eps


def check(q: Tensor, k: Tensor, v: Tensor, *, causal: bool, splits: int | None) -> None:
    truth = reference.attention(q, k, v, causal=causal)
    out = decode_attention(q, k, v, causal=causal, splits=splits)
    assert out.shape == q.shape and out.dtype == q.dtype and out.is_contiguous()
    assert reference.relative_error(out, truth) <= tolerance(q, k, v, truth, causal=causal)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_dim(head_dim: int) -> None:
    dtype = DTYPES[HEAD_DIMS.index(head_dim) % 3]
    check(*inputs(1, 4, 2, 1, 113, head_dim, dtype), causal=True, splits=2)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kv_len", [1, 2, 7, 15, 17, 63, 64, 65, 203])
def test_key_lengths_around_the_tile(kv_len: int, dtype: torch.dtype) -> None:
    check(*inputs(1, 2, 2, 1, kv_len, 72, dtype, seed=kv_len), causal=False, splits=3)


@pytest.mark.parametrize(("seq_len", "kv_len"), [(2, 65), (3, 3), (5, 3), (7, 1), (8, 64), (17, 113)])
@pytest.mark.parametrize("splits", [1, 4])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_few_queries_see_what_lies_before_them(seq_len: int, kv_len: int, splits: int, dtype: torch.dtype) -> None:
    q, k, v = inputs(2, 2, 1, seq_len, kv_len, 16, dtype)
    check(q, k, v, causal=True, splits=splits)
    if kv_len > 1 and seq_len > 1:  # the check has teeth: without the mask it would fail
        unmasked = decode_attention(q, k, v, causal=False, splits=splits)
        truth = reference.attention(q, k, v, causal=True)
        assert reference.relative_error(unmasked, truth) > tolerance(q, k, v, truth, causal=True)


@pytest.mark.parametrize(("n_head", "n_kv_head", "seq_len"), [(12, 2, 1), (6, 1, 3), (71, 1, 1), (3, 3, 1)])
def test_query_heads_that_share_a_key_head(n_head: int, n_kv_head: int, seq_len: int) -> None:
    check(*inputs(2, n_head, n_kv_head, seq_len, 70, 16, torch.float32), causal=True, splits=2)


def test_views_into_one_packed_projection() -> None:
    packed = torch.randn(2, 65, (4 + 2 * 2) * 72, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    q, k, v = reference.split_heads(packed, n_head=4, n_kv_head=2, head_dim=72)
    check(q[:, :, -1:], k, v, causal=True, splits=2)


def test_scores_far_from_zero_do_not_overflow() -> None:
    q, k, v = inputs(1, 2, 2, 1, 100, 64, torch.float16, size=30.0)
    check(q, k, v, causal=True, splits=2)


def test_scale_of_the_callers_own_even_negative() -> None:
    q, k, v = inputs(1, 2, 2, 1, 40, 16, torch.float32)
    out = decode_attention(q, k, v, scale=-0.3)
    assert reference.relative_error(out, reference.attention(q, k, v, causal=False, scale=-0.3)) < 1e-5


def test_nothing_to_read_gives_zeros_or_nothing() -> None:
    q, k, v = inputs(1, 2, 2, 1, 0, 16, torch.float32)
    assert torch.equal(decode_attention(q, k, v), torch.zeros_like(q))
    q, k, v = inputs(0, 2, 2, 1, 5, 16, torch.float32)
    assert decode_attention(q, k, v).shape == (0, 2, 1, 16)


@settings(max_examples=8, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_random_sizes(data: st.DataObject) -> None:
    n_kv_head = data.draw(st.integers(1, 3))
    sizes = (data.draw(st.integers(1, 2)), n_kv_head * data.draw(st.integers(1, 4)), n_kv_head,
             data.draw(st.integers(1, 4)), data.draw(st.integers(1, 130)), data.draw(st.integers(1, 96)))  # fmt: skip
    q, k, v = inputs(*sizes, data.draw(st.sampled_from(DTYPES)), seed=data.draw(st.integers(0, 99)))
    check(q, k, v, causal=data.draw(st.booleans()), splits=data.draw(st.integers(1, 5)))


def test_one_wrong_column_of_the_result_is_found() -> None:
    q, k, v = inputs(1, 2, 2, 1, 40, 72, torch.float16)
    out, truth = decode_attention(q, k, v), reference.attention(q, k, v, causal=False)
    assert reference.relative_error(out, truth) < 2e-3
    out[..., 71] = 0
    assert reference.relative_error(out, truth) > 0.01


def test_the_registered_kernel_is_the_same() -> None:
    problem = Problem(seq_len=1, kv_len=600, n_head=2, head_dim=40, direction="decode")
    q, k, v = inputs(1, 2, 2, 1, 600, 40, torch.float32)
    kernel = find_kernel("attention", "triton_decode")
    assert kernel.unsupported(problem, DEVICE) is None
    (out,) = (work := kernel.prepare(problem, {"q": q, "k": k, "v": v})).canonical(work.run())
    assert reference.relative_error(out, reference.attention(q, k, v, causal=True)) < 1e-5


def test_bad_arguments_are_named() -> None:
    q, k, v = inputs(1, 4, 2, 1, 8, 16, torch.float32)
    for arguments, named in {
        "head_dim": ((torch.zeros(1, 1, 1, 257, device=DEVICE),) * 3, "q must have a head_dim"),
        "heads": ((q, k[:, :1].expand(1, 3, 8, 16), v[:, :1].expand(1, 3, 8, 16)), "k must have a number of heads"),
        "dtype": ((q, k.half(), v), "k must have the dtype of q"),
        "stride": ((q, k, v.mT.contiguous().mT), "v must have a last stride of 1"),
        "double": ((q.double(), k, v), "q must be float16"),
        "gradient": ((q.clone().requires_grad_(), k, v), "must not require gradients"),
    }.values():
        with pytest.raises(ValueError, match=named):
            decode_attention(*arguments)
    with pytest.raises(ValueError, match="splits must be 1 to 128, not 0"):
        decode_attention(q, k, v, splits=0)
