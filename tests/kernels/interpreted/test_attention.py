"""The Triton attention kernels against float64: no worse than twice torch's own error in the same dtype.

bfloat16 in the interpreter: its product of bfloat16 operands is wrong and its cast truncates, so the kernels
widen operands to float32 there (exactly) and round to bfloat16 by their bits (flash/forward.py, `narrow`). What
is computed is what a GPU computes, but for the order of sums.
"""

from collections.abc import Callable

import pytest
import torch
from andrea_kernels import attention
from andrea_kernels.devices import interpreted
from andrea_kernels.flash import function
from andrea_kernels.heads import packed_views
from attention_criterion import (
    DTYPES,
    FLOOR_EPSILONS,
    Inputs,
    by_torch,
    compare,
    floors_of_large_inputs,
    inputs,
    normal,
    with_gradients,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from andrea_bench.kernel import find_kernel
from andrea_bench.measure import reference
from andrea_bench.measure.reference import relative_error
from andrea_bench.problem import Problem

HEAD_DIMS = (8, 16, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 160, 192, 224, 256)
ODD_HEAD_DIMS = (1, 63, 100, 240)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", HEAD_DIMS + ODD_HEAD_DIMS)
def test_forward_at_every_head_dim(device: str, head_dim: int, dtype: torch.dtype) -> None:
    tensors = inputs(device, dtype, seq_len=131, kv_len=75, head_dim=head_dim)
    compare(tensors, causal=False)
    compare(inputs(device, dtype, seq_len=75, kv_len=131, head_dim=head_dim), causal=True)


@pytest.mark.parametrize("head_dim", HEAD_DIMS + ODD_HEAD_DIMS)
def test_backward_at_every_head_dim(device: str, head_dim: int) -> None:
    dtype = DTYPES[head_dim // 8 % 3]
    compare(inputs(device, dtype, seq_len=67, kv_len=75, head_dim=head_dim), causal=True, backward=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("causal", [False, True])
def test_backward_in_every_dtype(device: str, dtype: torch.dtype, causal: bool) -> None:
    compare(inputs(device, dtype, seq_len=130, kv_len=70, head_dim=72), causal=causal, backward=True)


@pytest.mark.parametrize("variant", ["padded", "scalar_loads", "per_head_block"])
@pytest.mark.parametrize("head_dim", [64, 72, 100])
def test_variants(device: str, variant: str, head_dim: int) -> None:
    tensors = inputs(device, torch.float16, batch=2, seq_len=140, head_dim=head_dim)
    compare(tensors, causal=True, variant=variant)
    compare(inputs(device, torch.float16, seq_len=40, head_dim=head_dim), causal=True, variant=variant, backward=True)


@pytest.mark.parametrize("seq_len", [1, 2, 3, 7, 8, 15, 16, 17, 113, 127, 128, 129, 203])
@pytest.mark.parametrize("causal", [False, True])
def test_lengths_that_are_no_multiple_of_a_tile(device: str, seq_len: int, causal: bool) -> None:
    compare(inputs(device, torch.float16, n_head=1, seq_len=seq_len, head_dim=24), causal=causal, backward=True)


@pytest.mark.parametrize("seq_len", [192, 1000, 1025, 1989])
def test_long_lengths_that_are_no_multiple_of_a_tile(device: str, seq_len: int) -> None:
    tensors = inputs(device, torch.float16, n_head=1, seq_len=seq_len, head_dim=16)
    compare(tensors, causal=True, backward=seq_len == 1025)


@pytest.mark.parametrize("n_kv_head", [4, 2, 1])
def test_grouped_heads(device: str, n_kv_head: int) -> None:
    tensors = inputs(device, torch.float16, n_head=4, n_kv_head=n_kv_head, seq_len=20, head_dim=72)
    compare(tensors, causal=True, backward=True)


@pytest.mark.parametrize("head_dim", [64, 72])
def test_views_into_a_fused_projection(device: str, head_dim: int) -> None:
    problem = Problem(batch=2, seq_len=17, n_head=4, n_kv_head=2, head_dim=head_dim, dtype="float16")
    packed = normal(2, 17, 8 * head_dim, dtype=torch.float16, device=device)
    q, k, v = packed_views(packed, problem)
    assert not q.is_contiguous()
    compare((q, k, v), causal=True)
    copies = attention(q.contiguous(), k.contiguous(), v.contiguous(), causal=True)
    assert torch.equal(attention(q, k, v, causal=True), copies)
    # Heads laid out as (head, q k v) make views of the same shape and other content; they must not pass.
    heads = packed.unflatten(-1, (-1, head_dim)).transpose(1, 2)  # (batch, 8, seq_len, head_dim)
    interleaved = attention(heads[:, 0::2], heads[:, 1::4], heads[:, 3::4], causal=True)
    assert relative_error(interleaved, copies.double()) > 0.1


def test_gradients_reach_a_fused_projection(device: str) -> None:
    problem = Problem(batch=1, seq_len=19, n_head=2, n_kv_head=1, head_dim=40, dtype="float32")
    packed = normal(1, 19, 160, dtype=torch.float32, device=device).requires_grad_()
    mine = torch.autograd.grad(attention(*packed_views(packed, problem), causal=True).sum(), packed)[0]
    right = torch.autograd.grad(
        reference.attention(*packed_views(packed.double(), problem), causal=True).sum(), packed
    )[0]
    assert relative_error(mine, right.double()) < 1e-5


def test_rows_that_are_not_16_byte_aligned(device: str) -> None:
    whole = [normal(2, 30, 73, dtype=torch.float16, device=device, seed=seed) for seed in range(3)]
    q, k, v = (tensor[None, :, :, 1:] for tensor in whole)  # every address is odd in elements
    compare((q, k, v), causal=False)


@pytest.mark.parametrize(("batch", "seq_len", "kv_len"), [(0, 5, 5), (2, 5, 0), (2, 0, 5), (0, 0, 0)])
def test_empty_tensors_are_answered_as_torch_answers(device: str, batch: int, seq_len: int, kv_len: int) -> None:
    q, k, v = inputs(device, torch.float32, batch=batch, seq_len=seq_len, kv_len=kv_len, head_dim=8)
    out, *gradients = with_gradients(lambda *t: attention(*t), (q, k, v), torch.ones_like(q))
    assert torch.equal(out, scaled_dot_product_attention(q, k, v, enable_gqa=True))
    assert [g.shape for g in gradients] == [q.shape, k.shape, v.shape]
    assert all((g == 0).all() for g in gradients)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_large_magnitudes_do_not_overflow(device: str, dtype: torch.dtype) -> None:
    tensors = inputs(device, dtype, seq_len=70, head_dim=72, scale=30.0)
    compare(tensors, causal=True, backward=True, floors=floors_of_large_inputs(tensors, causal=True))
    q, k, v = inputs(device, dtype, seq_len=20, head_dim=72)
    compare((q + 200, k + 200, v), causal=False, floors=floors_of_large_inputs((q + 200, k + 200, v), causal=False))


@pytest.mark.parametrize("scale", [-0.3, 0.0, 1e-3, 2.5])
def test_scale(device: str, scale: float) -> None:
    compare(inputs(device, torch.float32, seq_len=33, head_dim=16), causal=True, scale=scale, backward=True)


def test_a_gradient_that_is_expanded_from_one_element(device: str) -> None:
    tensors = [tensor.requires_grad_() for tensor in inputs(device, torch.float32, seq_len=9, head_dim=8)]
    mine = torch.autograd.grad(attention(*tensors).sum(), tensors)
    right = torch.autograd.grad(by_torch(*tensors, causal=False).sum(), tensors)
    for a, b in zip(mine, right, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_only_the_gradients_that_are_wanted(device: str) -> None:
    q, k, v = inputs(device, torch.float32, seq_len=9, head_dim=8)
    attention(q.requires_grad_(), k, v).sum().backward()
    assert q.grad is not None
    assert k.grad is None


@pytest.mark.skipif(interpreted(), reason="the interpreter has one thread, which could not do otherwise")
def test_a_gpu_gives_the_same_results_from_run_to_run(device: str) -> None:
    tensors = inputs(device, torch.float16, batch=4, n_head=8, n_kv_head=2, seq_len=1000, head_dim=40)
    upstream = torch.ones_like(tensors[0])
    first = with_gradients(lambda *t: attention(*t, causal=True), tensors, upstream)
    again = with_gradients(lambda *t: attention(*t, causal=True), tensors, upstream)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("column", [0, 63, 64, 71])
def test_the_criterion_always_fails_one_wrong_column(device: str, column: int) -> None:
    q, k, v = inputs(device, torch.float16, n_head=1, seq_len=12, head_dim=72)
    right = reference.attention(q, k, v, causal=True)
    usual = relative_error(by_torch(q, k, v, causal=True), right)
    broken = attention(q, k, v, causal=True)
    broken[..., column] = broken[..., (column + 1) % 72]
    assert relative_error(broken, right) > 2 * usual + FLOOR_EPSILONS * torch.finfo(torch.float16).eps
    broken[..., column] = float("nan")
    assert relative_error(broken, right) == float("inf")


@settings(max_examples=10, deadline=None, derandomize=True)
@given(
    seq_len=st.integers(1, 140), kv_len=st.integers(1, 140), head_dim=st.integers(1, 256),
    group=st.integers(1, 3), n_kv_head=st.integers(1, 2), causal=st.booleans(), backward=st.booleans(),
    dtype=st.sampled_from(DTYPES), variant=st.sampled_from(["exact", "padded", "scalar_loads", "per_head_block"]),
)  # fmt: skip
def test_random_cases(
    seq_len: int, kv_len: int, head_dim: int, group: int, n_kv_head: int, causal: bool, backward: bool,
    dtype: torch.dtype, variant: str,
) -> None:  # fmt: skip
    device = "cpu" if interpreted() else "cuda"
    tensors = inputs(device, dtype, n_head=group * n_kv_head, n_kv_head=n_kv_head, seq_len=seq_len, kv_len=kv_len,
                     head_dim=head_dim)  # fmt: skip
    small = seq_len * kv_len * group * n_kv_head < 12000
    compare(tensors, causal=causal, variant=variant, backward=backward and small)


REFUSED = [
    ("q must have 4 dimensions", lambda q, k, v: (q[0], k, v)),
    ("q must be float16, bfloat16 or float32, not float64", lambda q, k, v: (q.double(), k, v)),
    ("k must have the dtype of q, float32, not float16", lambda q, k, v: (q, k.half(), v)),
    ("v must have a last stride of 1, not 2", lambda q, k, v: (q, k, v.repeat_interleave(2, -1)[..., ::2])),
    ("k must be float16, bfloat16 or float32, not float64", lambda q, k, v: (q, k.double(), v)),
    ("v must have 4 dimensions", lambda q, k, v: (q, k, v[0])),
    ("k must be on the device of q, .*, not on meta", lambda q, k, v: (q, k.to("meta"), v)),
    ("q must be on .*, not on meta", lambda q, k, v: [t.to("meta") for t in (q, k, v)]),
    (r"q must have at most 65535 sequences and heads, not \(65536, 2\)",
     lambda q, k, v: [t.expand(65536, -1, -1, -1) for t in (q, k, v)]),
    (r"q must have at most 65535 sequences and heads, not \(1, 65536\)",
     lambda q, k, v: (q[:, :1].expand(-1, 65536, -1, -1), k, v)),
    ("q must have a head_dim of 1 to 256, not 264", lambda q, k, v: [t.repeat(1, 1, 1, 33) for t in (q, k, v)]),
    ("q must have a head_dim of 1 to 256, not 0", lambda q, k, v: [t[..., :0] for t in (q, k, v)]),
    (r"k must be \(1, n_kv_head, kv_len, 8\) like q", lambda q, k, v: (q, k[..., :4].contiguous(), v)),
    ("v must have the shape of k", lambda q, k, v: (q, k, v[:, :, :3])),
    ("k must have a number of heads that divides the 2 of q, not 3",
     lambda q, k, v: (q, k.repeat(1, 3, 1, 1), v.repeat(1, 3, 1, 1))),
]  # fmt: skip


@pytest.mark.parametrize(("message", "change"), REFUSED, ids=[message for message, _ in REFUSED])
def test_what_is_refused(device: str, message: str, change: Callable[..., Inputs]) -> None:
    with pytest.raises(ValueError, match=message):
        attention(*change(*inputs(device, torch.float32, seq_len=5, head_dim=8)))


def test_as_many_sequences_and_heads_as_a_grid_has_blocks_are_accepted(device: str) -> None:
    q, k, v = inputs(device, torch.float32, n_head=1, seq_len=5, head_dim=8)
    function.check(*(t.expand(65535, -1, -1, -1) for t in (q, k, v)), "exact")
    function.check(q.expand(-1, 65535, -1, -1), k, v, "exact")


def test_an_unknown_variant_is_refused(device: str) -> None:
    with pytest.raises(ValueError, match="variant must be one of exact, padded, scalar_loads, per_head_block"):
        attention(*inputs(device, torch.float32, seq_len=5, head_dim=8), variant="fast")


def test_head_dims_beyond_the_limit_are_unsupported_in_a_sweep() -> None:
    problem = Problem(n_head=1, head_dim=264, dtype="float16")
    assert find_kernel("attention", "triton_exact").unsupported(problem, "cuda") == "does head_dim up to 256, not 264"
