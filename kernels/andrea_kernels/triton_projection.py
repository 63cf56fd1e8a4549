"""Projections in Triton that write heads, and read them, where attention wants them: no reshape, no transpose.

The idea, its sources and what it trades: projection/device.py.

triton_fused_qkv            one launch from X and W_QKV to q, k, v, each (batch, heads, seq_len, head_dim) contiguous
triton_per_head_projection  the same outputs from a grid over heads, one head's columns a tile, for contrast
triton_output_projection    the heads, wherever they lie, times W_O; they are never concatenated

Limits: float32 products are exact ("ieee", without tensor cores) unless the Problem says tf32; backward is torch's
matmuls. Nothing is tuned when a kernel runs: tiles come from a table (projection/tiles.py), one row for all three.
`--autotune` searches it for the first and the last; the second, there for contrast, takes what is found for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from andrea_bench.errors import Unsupported
from andrea_bench.kernel import Candidate, TritonLaunch, Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.projection import launch, tiles
from andrea_kernels.projection.launch import Launch, Sizes

if TYPE_CHECKING:
    from torch import Tensor

LOWEST_ARCHITECTURE = 80
LARGEST_HEAD_DIM = 256  # of triton_per_head_projection, whose tile is a head wide
TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "tf32": "fp32"}


def qkv_projection(
    x: Tensor, w_qkv: Tensor, *, n_head: int, n_kv_head: int, head_dim: int
) -> tuple[Tensor, Tensor, Tensor]:
    """q, k, v from one launch, with gradients.

    x: (batch, seq_len, d_model). w_qkv: (d_model, (n_head + 2 n_kv_head) head_dim), columns all Q heads, then K,
    then V. float16, bfloat16 or float32, both alike, on one CUDA device (CPU tensors with TRITON_INTERPRET=1), any
    strides with a last one of 1. Returns q (batch, n_head, seq_len, head_dim), k and v (batch, n_kv_head, seq_len,
    head_dim), each contiguous; the three share one allocation. Raises ValueError, naming the argument and what it
    must be, for anything else.
    """
    _check_qkv(x, w_qkv, n_head, n_kv_head, head_dim)
    return _project(x, w_qkv, n_head, n_kv_head, head_dim, launch.fused, tf32=False)


def output_projection(heads: Tensor, w_o: Tensor) -> Tensor:
    """The heads side by side times w_o, with gradients, and no concatenated copy in forward.

    heads: (batch, n_head, seq_len, head_dim). w_o: (n_head head_dim, d_model). dtypes, devices and strides as for
    qkv_projection. Returns (batch, seq_len, d_model), contiguous. Raises ValueError, naming the argument and what
    it must be.
    """
    _check_out(heads, w_o)
    return _project_out(heads, w_o, tf32=False)


def _check_out(heads: Tensor, w_o: Tensor) -> None:
    from andrea_kernels.projection import function

    function.check({"heads": (heads, 4), "w_o": (w_o, 2)})
    width = heads.shape[1] * heads.shape[3]
    if w_o.shape[0] != width:
        raise ValueError(f"w_o must have n_head head_dim = {width} rows, not {w_o.shape[0]}")


def _check_qkv(x: Tensor, w_qkv: Tensor, n_head: int, n_kv_head: int, head_dim: int) -> None:
    from andrea_kernels.projection import function

    function.check({"x": (x, 3), "w_qkv": (w_qkv, 2)})
    for name, value in (("n_head", n_head), ("n_kv_head", n_kv_head), ("head_dim", head_dim)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")
    if n_head % n_kv_head:
        raise ValueError(f"n_kv_head must divide n_head {n_head}, not be {n_kv_head}")
    wanted = (x.shape[2], (n_head + 2 * n_kv_head) * head_dim)
    if tuple(w_qkv.shape) != wanted:
        raise ValueError(
            f"w_qkv must be (d_model, (n_head + 2 n_kv_head) head_dim) = {wanted}, not {tuple(w_qkv.shape)}"
        )


def _project(
    x: Tensor, w_qkv: Tensor, n_head: int, n_kv_head: int, head_dim: int, maker: Callable[..., Launch], *, tf32: bool
) -> tuple[Tensor, Tensor, Tensor]:
    from andrea_kernels.projection.function import QkvProjection

    return QkvProjection.apply(x, w_qkv, n_head, n_kv_head, head_dim, maker, tf32)


def _project_out(heads: Tensor, w_o: Tensor, *, tf32: bool) -> Tensor:
    from andrea_kernels.projection.function import OutputProjection

    return OutputProjection.apply(heads, w_o, tf32)


def _require_architecture(tensor: Tensor) -> None:
    from andrea_kernels.devices import architecture

    found = architecture(tensor.device)
    if found < LOWEST_ARCHITECTURE:
        raise Unsupported(f"needs compute capability 8.0 or newer, not {found // 10}.{found % 10}")


def _sizes(problem: Problem, compute_capability: str) -> Sizes:
    if problem.direction == "backward":
        raise Unsupported("backward is torch's matmuls: no Triton kernel to compile")
    return Sizes(
        batch=problem.batch, seq_len=problem.seq_len, d_model=problem.d_model, n_head=problem.n_head,
        n_kv_head=problem.n_kv_head, head_dim=problem.head_dim, dtype=problem.dtype,
        architecture=int(compute_capability.replace(".", "")),
    )  # fmt: skip


def _describe(made: Launch, problem: Problem) -> list[TritonLaunch]:
    """A Launch in the words of the registry: types in place of values."""
    signature = {name: f"*{TRITON_NAMES[problem.dtype]}" for name in made.tensors}
    signature |= {name: "i32" if value < 2**31 else "i64" for name, value in made.scalars.items()}
    strides = [n for n, value in made.scalars.items() if n not in launch.LENGTHS and value % 16 == 0]
    tile = made.tile._asdict()
    return [
        TritonLaunch(
            function=made.function, signature=signature, constexprs=made.constants,
            num_warps=tile.pop("warps"), num_stages=tile.pop("stages"), grid=made.grid,
            # torch's allocator aligns tensors to 256 bytes or more.
            divisible_by_16=(*made.tensors, *strides),
            useful_mma_flops=2 * made.useful_products,
            tile=tile if "BLOCK_N" in made.constants else tile | {"block_n": problem.head_dim},
        )
    ]  # fmt: skip


def _into_heads(maker: Callable[..., Launch]) -> Callable[[Problem, str], list[TritonLaunch]]:
    def launches(problem: Problem, compute_capability: str) -> list[TritonLaunch]:
        sizes = _sizes(problem, compute_capability)
        strides = (problem.seq_len * problem.d_model, problem.d_model)
        return _describe(maker(sizes, strides, sizes.packed_heads * sizes.head_dim), problem)

    return launches


def _out_of_heads(problem: Problem, compute_capability: str) -> list[TritonLaunch]:
    sizes = _sizes(problem, compute_capability)
    head = problem.seq_len * problem.head_dim
    return _describe(launch.out(sizes, (problem.n_head * head, head, problem.head_dim), problem.d_model), problem)


def _candidates(problem: Problem, compute_capability: str) -> list[Candidate]:
    if problem.direction == "backward":
        return []
    sizes = _sizes(problem, compute_capability)
    return [
        Candidate(
            part=None,
            key=(sizes.architecture, sizes.kind),
            row=tiles.row_for(sizes.architecture, sizes.kind, tile),
            use=partial(tiles.trying, tile),
        )
        for tile in tiles.candidates(sizes.kind)
        if tile.block_m < 2 * max(sizes.rows, 16)  # larger ones would shrink to the rows
    ]


def _check_head_dim(problem: Problem, device: str) -> str | None:
    if problem.head_dim > LARGEST_HEAD_DIM:
        return f"does head_dim up to {LARGEST_HEAD_DIM}, not {problem.head_dim}"
    return None


def _upstream_bytes(problem: Problem) -> int:
    """Backward puts the gradients of the heads side by side."""
    if problem.direction not in ("backward", "forward_backward"):
        return 0
    heads = problem.n_head + 2 * problem.n_kv_head
    return 2 * problem.batch * problem.seq_len * heads * problem.head_dim * ELEMENT_BYTES[problem.dtype]


NEEDS: dict[str, Any] = {
    "devices": ("cuda",), "modules": ("torch", "triton"), "workspace_bytes": _upstream_bytes, "compile_seconds": 2.0,
}  # fmt: skip


def _prepare(problem: Problem, inputs: Mapping[str, Tensor], maker: Callable[..., Launch]) -> Work:
    x, w_qkv = inputs["x"], inputs["w_qkv"]
    _require_architecture(x)
    sizes = (problem.n_head, problem.n_kv_head, problem.head_dim)
    _check_qkv(x, w_qkv, *sizes)
    return Work(run=lambda: _project(x, w_qkv, *sizes, maker, tf32=problem.dtype == "tf32"))


@kernel("qkv_projection", launches=_into_heads(launch.fused), candidates=_candidates, **NEEDS)
def triton_fused_qkv(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One Triton launch from X to q, k, v as contiguous (batch, heads, seq_len, head_dim): no copy after it."""
    return _prepare(problem, inputs, launch.fused)


@kernel("qkv_projection", launches=_into_heads(launch.per_head), check=_check_head_dim, **NEEDS)
def triton_per_head_projection(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """The same in one Triton launch over heads, each block's tile the head_dim columns of one head."""
    return _prepare(problem, inputs, launch.per_head)


@kernel("output_projection", launches=_out_of_heads, candidates=_candidates, **NEEDS)
def triton_output_projection(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """One Triton launch that reads the heads where they are and multiplies by W_O: nothing is concatenated."""
    heads, w_o = inputs["heads"], inputs["w_o"]
    _require_architecture(heads)
    _check_out(heads, w_o)
    return Work(run=lambda: _project_out(heads, w_o, tf32=problem.dtype == "tf32"))
