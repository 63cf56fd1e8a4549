"""Offsets are 64 bits wide: every Triton kernel reads and writes elements that lie 2^31 and more apart.

On a CPU memory that nobody touches costs nothing, so a tensor may be as large as it likes, if few of its elements are
looked at. Where only a large result lies that far, the interpreter runs the blocks alone that write its end
(`only_blocks`). test_known_failures.py asks the same of rows of a fused projection, at the very length."""

import math
from collections.abc import Callable

import pytest
import torch
from andrea_kernels import output_projection
from andrea_kernels.devices import architecture
from andrea_kernels.flash import launch
from andrea_kernels.flash.function import describe
from andrea_kernels.flash.tiles import Tile
from andrea_kernels.projection import tiles as projection_tiles
from andrea_kernels.triton_decode import decode_attention
from attention_criterion import NEEDS_DESCRIPTORS, every_launch_with, normal, with_gradients
from torch import Tensor

from andrea_bench.kernel import find_kernel
from andrea_bench.measure import reference
from andrea_bench.measure.reference import relative_error
from andrea_bench.problem import Problem

# What a float16 result that was summed in float32 may differ by from float64's.
TOLERANCE = 4 * torch.finfo(torch.float16).eps
MakeZeros = Callable[..., Tensor]
Block = tuple[int, int, int]


def half(*shape: int, device: str, seed: int = 0, scale: float = 1.0) -> Tensor:
    return normal(*shape, dtype=torch.float16, device=device, seed=seed, scale=scale)


# ---- attention -------------------------------------------------------------------------------------------------
STEP = 2**30  # fits 32 bits, twice as much does not
# Shape and strides (batch, heads, positions, head_dim)
FAR = {
    "batch": ((3, 1, 3, 16), (STEP, 16, 16, 1)),
    "head": ((1, 3, 3, 16), (16, STEP, 16, 1)),
    "row": ((1, 1, 3, 16), (16, 16, STEP, 1)),  # of one tile
    "tile": ((1, 1, 67, 16), (16, 16, 2**25, 1)),  # row 64 begins the second tile
}


def run_all_launches(tensors: dict[str, Tensor], variant: str, *, descriptors: bool) -> None:
    """Forward and backward: out, dq, dk and dv where `tensors` has them."""
    q = tensors["q"]
    call = describe(tensors, causal=True, scale=0.25, variant=variant, precision="ieee")
    of_rows = {name: torch.empty(q.shape[:3], dtype=torch.float32, device=q.device) for name in ("log_sum", "delta")}
    with every_launch_with(Tile(64, 32, 4, 2, descriptors)):
        for made in launch.launches(call, architecture(q.device), "forward_backward"):
            assert made.part == "delta" or made.constants["DESCRIPTORS"] == descriptors
            made.bind(tensors | of_rows)()


@pytest.mark.parametrize(
    ("variant", "descriptors"),
    [
        pytest.param("exact", False, id="pointers"),
        pytest.param("exact", True, id="descriptors", marks=NEEDS_DESCRIPTORS),
        pytest.param("scalar_loads", False, id="scalar_loads"),
    ],
)
@pytest.mark.parametrize("far", FAR)
def test_attention_and_its_gradients(
    device: str, zeros_far_apart: MakeZeros, far: str, variant: str, descriptors: bool
) -> None:
    """All that attention reads (q, k, v, out, do) and writes (out, dq, dk, dv)."""
    shape, strides = FAR[far]
    reach = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    assert reach >= 2**31
    whole = zeros_far_apart(reach + 64 * len(launch.TENSORS))
    apart = {name: whole[64 * i :].as_strided(shape, strides) for i, name in enumerate(launch.TENSORS)}
    for seed, (name, tensor) in enumerate(apart.items()):
        given = name in ("q", "k", "v", "do")
        tensor.copy_(half(*shape, device=device, seed=seed) if given else torch.full(shape, torch.nan))
    together = {name: tensor.contiguous() for name, tensor in apart.items()}
    for tensors in (apart, together):
        run_all_launches(tensors, variant, descriptors=descriptors)
    for name in ("out", "dq", "dk", "dv"):
        assert apart[name].isfinite().all(), name
        assert torch.equal(apart[name], together[name]), name


def test_log_sums_and_deltas_of_attention(
    device: str, zeros_far_apart: MakeZeros, only_blocks: Callable[..., None]
) -> None:
    """65,535 heads of 32,770 rows have more log-sums than 2^31. Every row is the same one row, in one place."""
    n_head, seq_len, kv_len = 65_535, 32_770, 3
    assert (n_head - 1) * seq_len >= 2**31
    one = {name: half(1, 1, 1, 16, device=device, seed=i) for i, name in enumerate(("q", "out", "do", "dq"))}
    one |= {name: half(1, 1, kv_len, 16, device=device, seed=9 + i) for i, name in enumerate(("k", "v", "dk", "dv"))}
    one["do"] *= 0.1  # dk and dv are sums of 32,770 terms, and float16 ends at 65,504
    tensors = {name: t.expand(1, n_head, seq_len if t.shape[2] == 1 else kv_len, 16) for name, t in one.items()}
    of_rows = {name: zeros_far_apart(n_head * seq_len, torch.float32) for name in ("log_sum", "delta")}
    tensors |= {name: whole.view(1, n_head, seq_len) for name, whole in of_rows.items()}
    call = describe({name: tensors[name] for name in one}, causal=False, scale=0.25, variant="exact", precision="ieee")
    with every_launch_with(Tile(256, 16, 8, 2)):
        forward, delta, *backward = launch.launches(call, architecture(one["q"].device), "forward_backward")
    only_blocks()

    inputs, upstream = tuple(one[name].double() for name in ("q", "k", "v")), one["do"].double()
    out, dq, dk, dv = with_gradients(lambda *t: reference.attention(*t, causal=False, scale=0.25), inputs, upstream)
    log_sum = (0.25 * inputs[0] @ inputs[1].mT).logsumexp(-1).flatten() / math.log(2)
    forward.bind(tensors)()
    assert relative_error(one["out"], out) < TOLERANCE
    assert relative_error(tensors["log_sum"][0, -1, -1:], log_sum) < 1e-5
    delta.bind(tensors)()
    assert relative_error(tensors["delta"][0, -1, -1:], (one["out"].double() * upstream).sum(-1).flatten()) < 1e-5
    # What the other blocks of the last head would have written
    for name in of_rows:
        tensors[name][0, -1] = tensors[name][0, -1, -1].clone()
    for made in backward:
        made.bind(tensors)()
    for name, right in {"dq": dq, "dk": seq_len * dk, "dv": seq_len * dv}.items():
        assert relative_error(one[name], right) < 1e-2, name


# ---- decode ----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("strides", [(0, 0, 2**30), (0, 2**30, 16), (2**30, 16, 16)], ids=["row", "head", "batch"])
def test_decode_reads(device: str, strides: tuple[int, int, int], zeros_far_apart: MakeZeros) -> None:
    sizes = tuple(3 if stride == 2**30 else 1 for stride in strides)
    far = zeros_far_apart(2**31 + 64).as_strided((*sizes, 16), (*strides, 1))
    far.copy_(half(*sizes, 16, device=device))
    near = far.contiguous()
    q = half(sizes[0], sizes[1], 1, 16, device=device, seed=1)
    assert torch.equal(decode_attention(q, far, far), decode_attention(q, near, near))


@pytest.mark.parametrize(
    ("batch", "n_head", "splits"), [(257, 2**15, 1), (17, 2**15, 16)], ids=["results", "partial_results"]
)
def test_decode_writes(
    device: str, batch: int, n_head: int, splits: int, only_blocks: Callable[..., None], room_for: Callable[[int], None]
) -> None:
    assert (batch * n_head - 1) * splits * 256 >= 2**31
    room_for(batch * n_head * splits * 256 * (2 if splits == 1 else 4))
    q = half(1, 1, 1, 256, device=device).expand(batch, n_head, 1, 256)
    k, v = (half(1, 1, 300, 256, device=device, seed=seed).expand(batch, n_head, 300, 256) for seed in (1, 2))
    only_blocks(lambda grid: [(block, 0, 0) for block in range(grid[0] - splits, grid[0])])  # the last row's
    out = decode_attention(q, k, v, splits=splits)
    right = reference.attention(q[:1, :1], k[:1, :1], v[:1, :1], causal=False)
    assert relative_error(out[-1:, -1:], right) < TOLERANCE


# ---- projections -----------------------------------------------------------------------------------------------
INTO_HEADS = pytest.mark.parametrize("name", ["triton_fused_qkv", "triton_per_head_projection"])


def into_heads(name: str, x: Tensor, w_qkv: Tensor, **heads: int) -> tuple[Tensor, ...]:
    batch, seq_len, d_model = x.shape
    problem = Problem(batch=batch, seq_len=seq_len, d_model=d_model, dtype="float16", **heads)
    work = find_kernel("qkv_projection", name).prepare(problem, {"x": x, "w_qkv": w_qkv})
    return work.canonical(work.run())


@INTO_HEADS
@pytest.mark.parametrize("dimension", [0, 1])
def test_projections_read(device: str, name: str, dimension: int, zeros_far_apart: MakeZeros) -> None:
    buffer = zeros_far_apart(2**31 + 64)
    shape, strides = ((3, 1, 16), (2**30, 16, 1)) if dimension == 0 else ((1, 3, 16), (16, 2**30, 1))
    x = buffer.as_strided(shape, strides)
    x.copy_(half(*shape, device=device))
    w, heads = half(16, 24, device=device, seed=1), {"n_head": 1, "n_kv_head": 1, "head_dim": 8}
    for mine, same in zip(into_heads(name, x, w, **heads), into_heads(name, x.contiguous(), w, **heads), strict=True):
        assert torch.equal(mine, same)
    packed = buffer.as_strided((1, 3, 1, 16), (16, 2**30, 16, 1))
    packed.copy_(half(1, 3, 1, 16, device=device))
    w_o = half(48, 8, device=device, seed=1)
    assert torch.equal(output_projection(packed, w_o), output_projection(packed.contiguous(), w_o))


# Sizes at which one summand of an offset into the results passes 2^31, and a packed head whose last row lies there.
FAR_RESULTS = {
    "row": ((1, 2**24 + 1, 1), 2),  # v
    "head": ((1, 2**20 + 1, 17), 16),
    "batch": ((17, 2**16 + 1, 16), 15),
    "tensor": ((1, 2**20 + 1, 15), 16),  # v, behind 15 heads of q and one of k
}


@INTO_HEADS
@pytest.mark.parametrize("far", FAR_RESULTS)
def test_projections_write_heads(
    device: str, name: str, far: str, only_blocks: Callable[..., None], room_for: Callable[[int], None]
) -> None:
    (batch, seq_len, n_head), head = FAR_RESULTS[far]
    packed_heads, head_dim = n_head + 2, 128
    room_for(2 * batch * seq_len * packed_heads * head_dim)
    x = half(1, 1, 16, device=device).expand(batch, seq_len, 16)
    w = half(16, packed_heads * head_dim, device=device, seed=1)

    def last_rows(grid: Block) -> list[Block]:
        if name == "triton_per_head_projection":
            return [(grid[0] - 1, head, 0)]
        # Eight rows of tiles at a time; of the rest each column of tiles, a head, comes after the other.
        height = (grid[0] // packed_heads - 1) % 8 + 1
        return [(grid[0] - height * packed_heads + head * height + height - 1, 0, 0)]

    only_blocks(last_rows)
    with projection_tiles.trying(projection_tiles.Tile(16, head_dim, 16, 4, 2)):
        q, _, v = into_heads(name, x, w, n_head=n_head, n_kv_head=1, head_dim=head_dim)
    written = q[-1, head, -1] if head < n_head else v[-1, 0, -1]
    right = x[0, 0].double() @ w[:, head * head_dim : (head + 1) * head_dim].double()
    assert written.data_ptr() - q.data_ptr() >= 2 * 2**31
    assert relative_error(written, right) < TOLERANCE


@pytest.mark.parametrize(("batch", "seq_len"), [(1, 2**20 + 1), (2**20 + 1, 1)], ids=["row", "batch"])
def test_output_projection_writes(
    device: str, batch: int, seq_len: int, only_blocks: Callable[..., None], room_for: Callable[[int], None]
) -> None:
    d_model = 2048
    room_for(2 * batch * seq_len * d_model)
    heads = half(1, 1, 1, 16, device=device).expand(batch, 1, seq_len, 16)
    w_o = half(16, d_model, device=device, seed=1)
    only_blocks()
    with projection_tiles.trying(projection_tiles.Tile(16, 128, 16, 4, 2)):
        out = output_projection(heads, w_o)
    assert relative_error(out[-1, -1, -128:], heads[0, 0, 0].double() @ w_o[:, -128:].double()) < TOLERANCE
