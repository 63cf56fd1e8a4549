"""What kernels elsewhere were found to get wrong, asked of every Triton kernel: widths, lengths, layouts, offsets
beyond 2^31 and tolerances. Kernels and checks are those of a sweep: the float64 reference, twice torch's own error."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from andrea_kernels import attention, output_projection, qkv_projection
from andrea_kernels.flash.tiles import Tile
from andrea_kernels.heads import packed_views
from andrea_kernels.triton_decode import decode_attention
from attention_criterion import NEEDS_DESCRIPTORS, by_torch, cancelled, every_launch_with, with_gradients
from torch import Tensor

from andrea_bench.kernel import Kernel, find_kernel, kernels
from andrea_bench.measure import reference
from andrea_bench.measure.call import Prepared
from andrea_bench.measure.check import FLOOR_EPSILONS, expect
from andrea_bench.measure.inputs import make_inputs
from andrea_bench.problem import Problem

TRITON_KERNELS = [kernel for kernel in kernels() if kernel.modules == ("torch", "triton")]
DTYPES = ("float16", "bfloat16", "float32")
SEEDS = 200
GRADIENT_SEEDS = 25  # fewer, as the interpreter takes four launches for each


def identify(kernel: Kernel) -> str:
    return kernel.name


def assert_right(kernel: Kernel, problem: Problem, device: str) -> None:
    """The kernel's outputs and gradients, as a sweep runs and checks them."""
    assert kernel.unsupported(problem, "cuda") is None
    tensors = make_inputs(kernel.op, problem, device=device, seed=0)
    expected = expect(kernel.op, kernel.part, problem, tensors, seed=0)
    outputs, gradients = Prepared(kernel, problem, tensors, seed=0).outputs_and_gradients()
    assert expected.wrong_shape(outputs) is None
    error = expected.error(outputs, gradients)
    assert error <= expected.tolerance, f"{problem.label()}: {error:.2e}, allowed {expected.tolerance:.2e}"


@pytest.mark.parametrize(
    ("kernel", "direction"),
    [
        pytest.param(kernel, direction, id=f"{kernel.name}-{direction}")
        for kernel in TRITON_KERNELS
        for direction in kernel.directions
        if direction != "decode" or kernel.op == "attention"
    ],
)
@pytest.mark.parametrize("dtype", [*DTYPES, "tf32"])
def test_every_direction_and_dtype(device: str, kernel: Kernel, direction: Any, dtype: Any) -> None:
    if dtype not in kernel.dtypes:
        pytest.skip(f"{kernel.name} does not do {dtype}")
    seq_len = 1 if direction == "decode" else 24
    problem = Problem(batch=2, seq_len=seq_len, kv_len=24, n_head=2, n_kv_head=1, head_dim=24, d_model=40, dtype=dtype,
                      direction=direction)  # fmt: skip
    assert_right(kernel, problem, device)


def problem_of(kernel: Kernel, length: int, **sizes: Any) -> Problem:
    """With so many rows, or, in decoding, so many keys."""
    if "forward" in kernel.directions:
        return Problem(seq_len=length, dtype="float16", **sizes)
    return Problem(seq_len=1, kv_len=length, dtype="float16", direction="decode", **sizes)


@pytest.mark.parametrize("kernel", TRITON_KERNELS, ids=identify)
@pytest.mark.parametrize("head_dim", [16, 32, 64, 80, 96, 128, 256])
def test_every_column_of_a_head_is_computed(device: str, kernel: Kernel, head_dim: int) -> None:
    assert_right(kernel, problem_of(kernel, 128, n_head=2, head_dim=head_dim, d_model=32), device)


@pytest.mark.parametrize("kernel", TRITON_KERNELS, ids=identify)
@pytest.mark.parametrize("length", [1, 2, 7, 8, 15, 16, 17, 127, 128, 129, 1000, 1025])
def test_lengths_around_a_tile_and_far_beyond(device: str, kernel: Kernel, length: int) -> None:
    for causal in (True, False):
        problem = problem_of(kernel, length, n_head=1, head_dim=24, d_model=24, causal=causal)
        if "backward" in kernel.directions:
            problem = problem.replace(direction="forward_backward")
        assert_right(kernel, problem, device)


# ---- how Q, K and V lie in a packed projection ----------------------------------------------------------------
def storage_order(layout: str, n_head: int, n_kv_head: int) -> list[int]:
    """The packed heads, numbered as we lay them out (all Q, all K, all V), in the order in which others store them:
    NeoX and BLOOM per head, Falcon per KV group."""
    if layout == "block":
        return list(range(n_head + 2 * n_kv_head))
    group = n_head // n_kv_head
    assert layout == "per_kv_group" or group == 1
    return [
        head
        for g in range(n_kv_head)
        for head in (*range(g * group, (g + 1) * group), n_head + g, n_head + n_kv_head + g)
    ]


@pytest.mark.parametrize("name", ["triton_fused_qkv", "triton_per_head_projection"])
@pytest.mark.parametrize(
    ("layout", "n_head", "n_kv_head", "head_dim"),
    [
        ("block", 8, 8, 256), ("per_head", 8, 8, 256),  # Pythia 1B, but for d_model
        ("block", 128, 8, 64), ("per_kv_group", 128, 8, 64),  # Falcon 40B
    ],
)  # fmt: skip
def test_a_fused_projection_is_that_of_each_head(
    device: str, name: str, layout: str, n_head: int, n_kv_head: int, head_dim: int
) -> None:
    """Weights in any layout give each head's own projection once their columns are in ours, and else another."""
    problem = Problem(seq_len=8, d_model=32, n_head=n_head, n_kv_head=n_kv_head, head_dim=head_dim)
    tensors = make_inputs("qkv_projection", problem, device=device, seed=1)
    stored = tensors["w_qkv"].unflatten(1, (-1, head_dim))  # (d_model, packed heads, head_dim)
    order = storage_order(layout, n_head, n_kv_head)
    # One product a head, its columns where the layout has them: (packed heads, seq_len, head_dim)
    separate = torch.stack([tensors["x"][0].double() @ stored[:, order.index(h)].double() for h in range(len(order))])

    def largest_error(w_qkv: Tensor) -> float:
        work = find_kernel("qkv_projection", name).prepare(problem, {"x": tensors["x"], "w_qkv": w_qkv})
        return reference.relative_error(torch.cat(work.canonical(work.run()), dim=1)[0], separate)

    ours = stored[:, [order.index(h) for h in range(len(order))]].flatten(1)
    assert largest_error(ours) < 1e-6
    assert (largest_error(stored.flatten(1)) < 1e-6) == (layout == "block")


# ---- offsets --------------------------------------------------------------------------------------------------
PACKED_ROW = 3 * 56 * 128  # elements of one position of a fused projection, 56 heads of 128


# Of so many rows every STEPth, for the interpreter's sake: the offset of the last is the same product.
@pytest.fixture(params=[(99_865, 12_483), (99_866, 19_973)], ids=["99865", "99866"])
def rows_of_a_fused_projection(
    request: pytest.FixtureRequest, device: str, zeros_far_apart: Callable[[int], Tensor]
) -> Tensor:
    """(1, 1, 9 or 6, 16): first columns of a head in a packed projection. The last of 99,866 rows is the first that
    starts 2^31 elements or more after the first row."""
    rows, step = request.param
    steps, rest = divmod(rows - 1, step)
    assert rest == 0
    assert (steps * step * PACKED_ROW >= 2**31) == (rows == 99_866)
    shape, strides = (1, 1, steps + 1, 16), (rows * PACKED_ROW, 128, step * PACKED_ROW, 1)
    head = zeros_far_apart(rows * PACKED_ROW).as_strided(shape, strides)
    head.copy_(torch.randn(shape, generator=torch.Generator().manual_seed(1)))
    return head


@pytest.mark.parametrize("attend", [attention, decode_attention], ids=["attention", "decode"])
def test_attention_of_rows_beyond_31_bits(rows_of_a_fused_projection: Tensor, attend: Callable[..., Tensor]) -> None:
    far, near = rows_of_a_fused_projection, rows_of_a_fused_projection.contiguous()
    assert torch.equal(attend(far, far, far, causal=True), attend(near, near, near, causal=True))


@pytest.mark.parametrize(
    "descriptors",
    [False, pytest.param(True, marks=NEEDS_DESCRIPTORS)],
    ids=["pointers", "descriptors"],
)
def test_gradients_of_rows_beyond_31_bits(rows_of_a_fused_projection: Tensor, descriptors: bool) -> None:
    far, near = rows_of_a_fused_projection, rows_of_a_fused_projection.contiguous()  # the upstream gradient too

    def results(rows: Tensor) -> list[Tensor]:
        return with_gradients(partial(attention, causal=True), (rows, rows, rows), rows)

    with every_launch_with(Tile(64, 32, 4, 2, descriptors)):
        assert all(torch.equal(one, same) for one, same in zip(results(far), results(near), strict=True))


@pytest.mark.parametrize("name", ["triton_fused_qkv", "triton_per_head_projection", "triton_output_projection"])
def test_projections_of_rows_beyond_31_bits(rows_of_a_fused_projection: Tensor, name: str) -> None:
    w = torch.randn(16, 24, generator=torch.Generator().manual_seed(2)).to(rows_of_a_fused_projection)
    far, near = rows_of_a_fused_projection, rows_of_a_fused_projection.contiguous()
    kernel = find_kernel("output_projection" if name == "triton_output_projection" else "qkv_projection", name)

    def run(rows: Tensor) -> Tensor:
        problem = Problem(seq_len=rows.shape[2], d_model=16, n_head=1, head_dim=8, dtype="float16")
        if kernel.op == "output_projection":
            problem = problem.replace(d_model=24, head_dim=16)
            work = kernel.prepare(problem, {"heads": rows, "w_o": w})
        else:
            work = kernel.prepare(problem, {"x": rows[0], "w_qkv": w})
        return torch.cat(work.canonical(work.run()), dim=1)

    assert torch.equal(run(far), run(near))


# ---- the criterion --------------------------------------------------------------------------------------------
# A kernel's result, plain torch's, float64's, and a floor of its own
Compared = tuple[Tensor, Tensor, Tensor, Tensor | float]


def errors(result: Tensor, right: Tensor) -> Tensor:
    """relative_error of each sample, (seeds,)."""
    difference = (result.double() - right).abs()
    return difference.flatten(1).amax(1) / right.abs().flatten(1).amax(1)


def samples(seeds: int, size: float, dtype: str, device: str, *, tensors: int) -> list[Tensor]:
    """So many normal tensors (seeds, heads, positions, head_dim), each of the batch a sample of its own."""
    generator = torch.Generator().manual_seed(5)
    shape = (seeds, 1, 12, 16)
    return [(torch.randn(shape, generator=generator) * size).to(device, getattr(torch, dtype)) for _ in range(tensors)]


def assert_only_what_is_right_passes(compared: Compared, name: str = "out") -> None:
    mine, plain, right, floor = compared
    allowed = 2 * errors(plain, right) + FLOOR_EPSILONS * torch.finfo(plain.dtype).eps + floor
    assert (errors(mine, right) <= allowed).all(), name
    wrong = mine.clone()
    wrong[..., 15] = mine[..., 14]
    assert (errors(wrong, right) > allowed).all(), name


def of_attention(
    q: Tensor, k: Tensor, v: Tensor, attend: Callable[..., Tensor] = attention, *, causal: bool = False
) -> Compared:
    right = reference.attention(q, k, v, causal=causal)
    # A score is known to a float32 epsilon of its size, and a weight errs by as much as its score.
    scores = (q.double() @ k.double().mT).abs().flatten(1).amax(1) * q.shape[-1] ** -0.5
    floor = torch.finfo(torch.float32).eps * scores
    return attend(q, k, v, causal=causal), by_torch(q, k, v, causal=causal), right, floor


def of_causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Compared:
    return of_attention(q, k, v, causal=True)


def of_causal_decode(q: Tensor, k: Tensor, v: Tensor) -> Compared:
    return of_attention(q, k, v, partial(decode_attention, splits=1), causal=True)


def of_projection(q: Tensor, k: Tensor, v: Tensor) -> Compared:
    x, w = q[:, 0], k[:4, 0].flatten(0, 1).mT.contiguous()  # (SEEDS, 12, 16), (16, 48)
    mine = torch.cat(qkv_projection(x, w, n_head=1, n_kv_head=1, head_dim=16), dim=1)
    problem = Problem(batch=SEEDS, seq_len=12, d_model=16, n_head=1, head_dim=16)
    plain, right = (torch.cat(packed_views(packed, problem), dim=1) for packed in (x @ w, x.double() @ w.double()))
    return mine, plain, right, torch.zeros(SEEDS, device=x.device)


def of_output_projection(q: Tensor, k: Tensor, v: Tensor) -> Compared:
    w = k[:2, 0].flatten(0, 1)[:16].mT.contiguous()  # (16, 16)
    return output_projection(q, w), q[:, 0] @ w, reference.output_projection(q, w), torch.zeros(SEEDS, device=q.device)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize(
    "made", [of_attention, of_causal_attention, of_causal_decode, of_projection, of_output_projection]
)
def test_no_seed_fails_a_right_kernel_and_none_passes_a_wrong_column(
    device: str, made: Callable[..., Compared], size: float, dtype: str
) -> None:
    assert_only_what_is_right_passes(made(*samples(SEEDS, size, dtype, device, tensors=3)))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1.0, 30.0])
@pytest.mark.parametrize("causal", [False, True])
def test_no_seed_fails_right_gradients_and_none_passes_a_wrong_column(
    device: str, causal: bool, size: float, dtype: str
) -> None:
    q, k, v, upstream = samples(GRADIENT_SEEDS, size, dtype, device, tensors=4)
    # The same weights at each size. Else one key has all the weight at 30, and dq and dk are what is left of nothing:
    # test_large_magnitudes_do_not_overflow has those.
    options = {"causal": causal, "scale": 0.25 / size**2}
    wide = tuple(tensor.double() for tensor in (q, k, v))
    mine = with_gradients(partial(attention, **options), (q, k, v), upstream)
    plain = with_gradients(partial(by_torch, **options), (q, k, v), upstream)
    right = with_gradients(partial(reference.attention, **options), wide, upstream)
    # delta is a sum of products of the rounded out: an epsilon of what is summed.
    eps = torch.finfo(q.dtype).eps
    floors = [0.0, *(eps * ratio for ratio in cancelled((q, k, v), upstream, **options)), 0.0]
    for name, *results, floor in zip(("out", "dq", "dk", "dv"), mine, plain, right, floors, strict=True):
        assert_only_what_is_right_passes((*results, floor), name)
