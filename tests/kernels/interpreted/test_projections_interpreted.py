"""Projections in Triton's interpreter, on CPU tensors; run by test_interpreted.py with TRITON_INTERPRET=1.

The float64 reference is the truth; the tolerance is twice the error of torch's own product in the same dtype on the
same inputs plus a floor, 4 epsilons of the dtype (measure/check.py says why)."""

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from andrea_kernels import output_projection, qkv_projection
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from andrea_bench.kernel import find_kernel
from andrea_bench.measure import reference
from andrea_bench.problem import Problem

HEAD_DIMS = (8, 16, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128, 160, 192, 224, 256)
DEVICE = "cpu" if os.environ.get("TRITON_INTERPRET") == "1" else "cuda"
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
NAMES = ("triton_fused_qkv", "triton_per_head_projection")


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE, dtype)


def into_heads(name: str) -> Callable[..., tuple[Tensor, ...]]:
    """The registered kernel as a function of x and w_qkv."""

    def project(x: Tensor, w_qkv: Tensor, *, n_head: int, n_kv_head: int, head_dim: int) -> tuple[Tensor, ...]:
        batch, seq_len, d_model = x.shape
        problem = Problem(batch=batch, seq_len=seq_len, d_model=d_model, n_head=n_head, n_kv_head=n_kv_head,
                          head_dim=head_dim, dtype=str(x.dtype)[6:])  # fmt: skip
        work = find_kernel("qkv_projection", name).prepare(problem, {"x": x, "w_qkv": w_qkv})
        return work.canonical(work.run())

    return project


def close(mine: tuple[Tensor, ...], truth: tuple[Tensor, ...], plain: tuple[Tensor, ...]) -> None:
    for one, true, torchs in zip(mine, truth, plain, strict=True):
        assert one.shape == true.shape and one.dtype == torchs.dtype
        tolerance = 2 * reference.relative_error(torchs, true) + 4 * torch.finfo(torchs.dtype).eps
        assert reference.relative_error(one, true) <= tolerance


def check_qkv(project: Callable[..., tuple[Tensor, ...]], x: Tensor, w: Tensor, **sizes: int) -> None:
    outputs = project(x, w, **sizes)
    assert all(o.is_contiguous() for o in outputs)
    close(outputs, reference.qkv_projection(x, w, **sizes), reference.split_heads(x @ w, **sizes))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_qkv_at_every_head_dim(name: str, head_dim: int) -> None:
    dtype = DTYPES[HEAD_DIMS.index(head_dim) % 3]
    w = normal(48, 4 * head_dim, dtype=dtype, seed=1)
    check_qkv(into_heads(name), normal(2, 9, 48, dtype=dtype), w, n_head=2, n_kv_head=1, head_dim=head_dim)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("batch", "seq_len"), [(1, 1), (3, 1), (2, 7), (1, 17), (2, 113), (1, 128), (1, 129)])
def test_rows_around_the_tile(name: str, batch: int, seq_len: int) -> None:
    check_qkv(
        into_heads(name), normal(batch, seq_len, 40), normal(40, 6 * 24, seed=1), n_head=2, n_kv_head=2, head_dim=24
    )


@pytest.mark.parametrize("name", NAMES)
def test_x_and_weights_as_views(name: str) -> None:
    x = normal(2, 10, 80)[:, ::2, 8:72]  # rows 160 apart
    w = normal(64, 200, seed=1)[:, 8:168]
    check_qkv(into_heads(name), x, w, n_head=3, n_kv_head=1, head_dim=32)


@pytest.mark.parametrize("name", NAMES)
def test_columns_are_all_q_then_all_k_then_all_v(name: str) -> None:
    """One matmul for each head says where its columns belong; the layouts that others store, per head or per KV
    group, hold the same shapes and must not pass."""
    n_head, n_kv_head, head_dim = 4, 2, 16
    x, w = normal(1, 5, 32), normal(32, 8 * 16, seed=1)
    q, k, v = into_heads(name)(x, w, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim)
    heads = [x[0].double() @ w[:, i * 16 : (i + 1) * 16].double() for i in range(8)]
    for h in range(4):
        assert torch.allclose(q[0, h].double(), heads[h], atol=1e-5)
    for g in range(2):
        assert torch.allclose(k[0, g].double(), heads[4 + g], atol=1e-5)
        assert torch.allclose(v[0, g].double(), heads[6 + g], atol=1e-5)
    per_group = [0, 1, 4, 5]  # where each KV group stores 2 Q heads, then its K and V
    assert not any(torch.allclose(q[0, h].double(), heads[at], atol=1e-2) for h, at in enumerate(per_group) if h != at)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_dim", [8, 24, 64, 72, 112, 256])
def test_output_projection_reads_heads_where_they_are(head_dim: int, dtype: torch.dtype) -> None:
    w_o = normal(3 * head_dim, 56, dtype=dtype, seed=1)
    contiguous = normal(2, 3, 19, head_dim, dtype=dtype)
    strided = normal(2, 19, 3, head_dim, dtype=dtype).transpose(1, 2)
    for heads in (contiguous, strided):
        plain = heads.transpose(1, 2).flatten(2) @ w_o
        close((output_projection(heads, w_o),), (reference.output_projection(heads, w_o),), (plain,))


def test_gradients_are_those_of_the_products() -> None:
    x, w = normal(2, 5, 24).requires_grad_(), normal(24, 4 * 8, seed=1).requires_grad_()
    sizes = {"n_head": 2, "n_kv_head": 1, "head_dim": 8}
    upstream = [normal(*o.shape, seed=2) for o in reference.qkv_projection(x, w, **sizes)]
    mine = torch.autograd.grad(qkv_projection(x, w, **sizes), (x, w), upstream)
    x64, w64 = (t.detach().double().requires_grad_() for t in (x, w))
    truth = torch.autograd.grad(reference.qkv_projection(x64, w64, **sizes), (x64, w64), [u.double() for u in upstream])
    heads, w_o = normal(2, 3, 5, 8).requires_grad_(), normal(24, 16, seed=1).requires_grad_()
    above = normal(2, 5, 16, seed=3)
    mine += torch.autograd.grad(output_projection(heads, w_o), (heads, w_o), above)
    h64, o64 = (t.detach().double().requires_grad_() for t in (heads, w_o))
    truth += torch.autograd.grad(reference.output_projection(h64, o64), (h64, o64), above.double())
    for one, true in zip(mine, truth, strict=True):
        assert one.shape == true.shape
        assert reference.relative_error(one, true) < 1e-6


@settings(max_examples=8, deadline=None, database=None, derandomize=True)
@given(st.data())
def test_random_sizes(data: st.DataObject) -> None:
    n_kv_head = data.draw(st.integers(1, 3))
    sizes = {"n_head": n_kv_head * data.draw(st.integers(1, 3)), "n_kv_head": n_kv_head,
             "head_dim": data.draw(st.integers(1, 80))}  # fmt: skip
    dtype, d_model = data.draw(st.sampled_from(DTYPES)), data.draw(st.integers(1, 70))
    x = normal(data.draw(st.integers(1, 3)), data.draw(st.integers(1, 50)), d_model, dtype=dtype)
    w = normal(d_model, (sizes["n_head"] + 2 * n_kv_head) * sizes["head_dim"], dtype=dtype, seed=1)
    for name in NAMES:
        check_qkv(into_heads(name), x, w, **sizes)


def test_inputs_of_any_size_pass_and_a_wrong_column_never_does() -> None:
    sizes = {"n_head": 2, "n_kv_head": 1, "head_dim": 16}
    for seed in range(20):
        for size in (1.0, 30.0):
            x, w = (normal(1, 4, 32, seed=seed) * size).half(), normal(32, 64, dtype=torch.float16, seed=seed + 99)
            check_qkv(qkv_projection, x, w, **sizes)
    q, k, v = (o.clone() for o in qkv_projection(x, w, **sizes))
    v[..., 15] = 0
    with pytest.raises(AssertionError):
        close((q, k, v), reference.qkv_projection(x, w, **sizes), reference.split_heads(x @ w, **sizes))


def test_batch_0_gives_nothing() -> None:
    q, k, v = qkv_projection(normal(0, 3, 8), normal(8, 4 * 8), n_head=2, n_kv_head=1, head_dim=8)
    assert q.shape == (0, 2, 3, 8) and k.shape == v.shape == (0, 1, 3, 8)
    assert output_projection(normal(0, 2, 3, 8), normal(16, 8)).shape == (0, 3, 8)


SIZES = {"n_head": 2, "n_kv_head": 1, "head_dim": 8}
REFUSED_QKV = [
    (r"w_qkv must be .* = \(8, 32\), not \(8, 24\)", lambda x, w: (x, w[:, :24], SIZES)),
    ("n_kv_head must divide n_head 3, not be 2", lambda x, w: (x, w, SIZES | {"n_head": 3, "n_kv_head": 2})),
    ("n_head must be at least 1, not 0", lambda x, w: (x, w, SIZES | {"n_head": 0})),
    ("n_kv_head must be at least 1, not 0", lambda x, w: (x, w, SIZES | {"n_kv_head": 0})),
    ("n_kv_head must be at least 1, not -1", lambda x, w: (x, w, SIZES | {"n_kv_head": -1})),
    ("head_dim must be at least 1, not 0", lambda x, w: (x, w, SIZES | {"head_dim": 0})),
    ("x must have 3 dimensions, not 2", lambda x, w: (x[0], w, SIZES)),
    ("w_qkv must have 2 dimensions, not 3", lambda x, w: (x, w[None], SIZES)),
    ("x must be float16, bfloat16 or float32, not float64", lambda x, w: (x.double(), w.double(), SIZES)),
    ("w_qkv must be float16, bfloat16 or float32, not float64", lambda x, w: (x, w.double(), SIZES)),
    ("w_qkv must have the dtype of x, float32, not float16", lambda x, w: (x, w.half(), SIZES)),
    ("x must be on .*, not on meta", lambda x, w: (x.to("meta"), w.to("meta"), SIZES)),
    (f"w_qkv must be on the device of x, {DEVICE}.*, not on meta", lambda x, w: (x, w.to("meta"), SIZES)),
    ("x must have a last stride of 1, not 2", lambda x, w: (x.repeat_interleave(2, -1)[..., ::2], w, SIZES)),
    ("w_qkv must have a last stride of 1, not 8", lambda x, w: (x, w.T.contiguous().T, SIZES)),
]


@pytest.mark.parametrize(("message", "change"), REFUSED_QKV, ids=[message for message, _ in REFUSED_QKV])
def test_what_a_projection_into_heads_refuses(message: str, change: Callable[..., Any]) -> None:
    x, w, sizes = change(normal(1, 2, 8), normal(8, 32))
    with pytest.raises(ValueError, match=message):
        qkv_projection(x, w, **sizes)


REFUSED_OUTPUT = [
    ("w_o must have n_head head_dim = 16 rows, not 8", lambda heads, w: (heads, w[:8])),
    ("heads must have 4 dimensions, not 3", lambda heads, w: (heads[0], w)),
    ("heads must be float16, bfloat16 or float32, not float64", lambda heads, w: (heads.double(), w.double())),
    ("w_o must have the dtype of heads, float32, not float16", lambda heads, w: (heads, w.half())),
    (f"w_o must be on the device of heads, {DEVICE}.*, not on meta", lambda heads, w: (heads, w.to("meta"))),
    ("heads must be on .*, not on meta", lambda heads, w: (heads.to("meta"), w.to("meta"))),
    ("heads must have a last stride of 1, not 3", lambda heads, w: (heads.mT.contiguous().mT, w)),
]


@pytest.mark.parametrize(("message", "change"), REFUSED_OUTPUT, ids=[message for message, _ in REFUSED_OUTPUT])
def test_what_an_output_projection_refuses(message: str, change: Callable[..., Any]) -> None:
    heads, w = change(normal(1, 2, 3, 8), normal(16, 8))
    with pytest.raises(ValueError, match=message):
        output_projection(heads, w)
