"""Flash attention in Triton at the exact width, and three variants that each change one thing.

The idea, its source and what it trades: flash/forward.py. The variants share its source, its backward pass and its tile
table, so that what sets them apart is what their names say:

triton_exact           head_dim rounded up to 16 (225 to 240 as 256); 16-byte loads wherever addresses allow.
triton_padded          the width padded to the next power of two: what most Triton kernels do (72 as 128).
triton_scalar_loads    exact width, run-time strides without a hint: where head_dim is no multiple of 16
                       elements, Triton can't prove that rows are aligned, and loads 2 bytes at a time (and no
                       tensor descriptors, which some tiles of 9.0 read by).
triton_per_head_block  one block for each (batch, head), walking over the query tiles: fewer blocks than a
                       GPU has SMs leave the others idle.

Limits: head_dim up to 256; float32 products are exact ("ieee", without tensor cores) unless the Problem says
tf32. Nothing is tuned when a kernel runs: tiles come from a table (flash/tiles.py), by computed width, one for all
four. `--autotune` searches it for triton_exact and triton_padded in 16-bit types; those of float32 are not searched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from andrea_bench.errors import Unsupported
from andrea_bench.kernel import Block, Candidate, TritonLaunch, Work, kernel
from andrea_bench.problem import Problem
from andrea_kernels.devices import architecture as architecture_of
from andrea_kernels.flash import launch, tiles
from andrea_kernels.flash.launch import LARGEST_HEAD_DIM, Call, Launch

if TYPE_CHECKING:
    from torch import Tensor

LOWEST_ARCHITECTURE = 80
TORCH_NAMES = {"tf32": "float32"}
TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32"}
FLOAT32_TENSORS = ("log_sum", "delta")


def _check(problem: Problem, device: str) -> str | None:
    if problem.head_dim > LARGEST_HEAD_DIM:
        return f"does head_dim up to {LARGEST_HEAD_DIM}, not {problem.head_dim}"
    return None


def _precision(problem: Problem) -> str:
    return "tf32" if problem.dtype == "tf32" else "ieee"


def _launches(variant: str) -> Callable[[Problem, str], list[TritonLaunch]]:
    def launches(problem: Problem, compute_capability: str) -> list[TritonLaunch]:
        architecture = int(compute_capability.replace(".", ""))
        queries = launch.contiguous_strides(problem.batch, problem.n_head, problem.seq_len, problem.head_dim)
        keys = launch.contiguous_strides(problem.batch, problem.n_kv_head, problem.kv_len, problem.head_dim)
        call = Call(
            batch=problem.batch, n_head=problem.n_head, n_kv_head=problem.n_kv_head, seq_len=problem.seq_len,
            kv_len=problem.kv_len, head_dim=problem.head_dim, precision=_precision(problem),
            dtype=TORCH_NAMES.get(problem.dtype, problem.dtype), causal=problem.causal,
            scale=problem.head_dim**-0.5, variant=variant,
            strides={name: keys if name in ("k", "v", "dk", "dv") else queries for name in launch.TENSORS},
        )  # fmt: skip
        made = launch.launches(call, architecture, problem.direction)
        return [_describe(one, call, one.part if len(made) > 1 else None) for one in made]

    return launches


def _describe(made: Launch, call: Call, part: str | None) -> TritonLaunch:
    """A Launch in the words of the registry: types in place of values."""
    signature = {name: "*fp32" if name in FLOAT32_TENSORS else f"*{TRITON_NAMES[call.dtype]}" for name in made.tensors}
    for name, value in made.scalars.items():
        signature[name] = "fp32" if isinstance(value, float) else "i32" if abs(value) < 2**31 else "i64"
    specialised = [n for n, v in made.scalars.items() if isinstance(v, int) and n not in launch.LENGTHS]
    return TritonLaunch(
        function=made.function,
        signature=signature,
        constexprs=dict(made.constants),
        num_warps=made.tile.warps,
        num_stages=made.tile.stages,
        grid=made.grid,
        part=part,
        # torch's allocator aligns tensors to 256 bytes or more.
        divisible_by_16=(*made.tensors, *(n for n in specialised if made.scalars[n] % 16 == 0)),
        useful_mma_flops=made.matrix_products * 2 * made.tile.block_m * made.tile.block_n * call.head_dim,
        tile={"block_m": made.tile.block_m, "block_n": made.tile.block_n},
    )


def _candidates(problem: Problem, compute_capability: str, *, padded: bool = False) -> list[Candidate]:
    """Those of the two 16-bit types: what float32 takes (FLOAT32_TILES) is not in the table that a row is for."""
    if problem.dtype in ("float32", "tf32"):
        return []
    architecture = int(compute_capability.replace(".", ""))
    width = tiles.computed_width(problem.head_dim, padded=padded)
    backward = problem.direction in ("backward", "forward_backward")
    made = []
    for direction in ("dkv", "dq") if backward else ("forward",):
        for tile in tiles.candidates(direction, architecture):
            key, row = tiles.row_for(architecture, width, direction, tile)
            made.append(Candidate(direction if backward else None, key, row, partial(tiles.trying, direction, tile)))
    return made


def _prepare(problem: Problem, inputs: Mapping[str, Tensor], variant: str) -> Work:
    from andrea_kernels.flash import function

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    found = architecture_of(q.device)
    if found < LOWEST_ARCHITECTURE:
        raise Unsupported(f"needs compute capability 8.0 or newer, not {found // 10}.{found % 10}")
    function.check(q, k, v, variant)
    options: dict[str, Any] = {"causal": problem.causal, "scale": problem.head_dim**-0.5,
                               "variant": variant, "precision": _precision(problem)}  # fmt: skip
    if problem.direction in ("backward", "forward_backward"):
        return Work(run=lambda: function.differentiable(q, k, v, **options), backend=f"triton_{variant}")
    out, _, forward = function.prepare_forward(q, k, v, **options)

    def run() -> Tensor:
        forward()
        return out

    return Work(run=run, backend=f"triton_{variant}")


def _exact_width(problem: Problem) -> int:
    return tiles.computed_width(problem.head_dim)


def _padded_width(problem: Problem) -> int:
    return tiles.computed_width(problem.head_dim, padded=True)


# The launches of a direction that multiply matrices, with the products of each (flash/launch.py).
MATRIX_PRODUCTS = {"forward": {"forward": 2}, "backward": {"dkv": 4, "dq": 3}}


def _blocks(problem: Problem, compute_capability: str, *, padded: bool = False) -> list[Block]:
    """The launches of the forward or the backward pass, known without triton."""
    architecture = int(compute_capability.replace(".", ""))
    if architecture < LOWEST_ARCHITECTURE:
        raise Unsupported(f"needs compute capability 8.0 or newer, not {compute_capability}")
    width = tiles.computed_width(problem.head_dim, padded=padded)
    made = []
    for part, products in MATRIX_PRODUCTS["backward" if problem.direction == "backward" else "forward"].items():
        tile = tiles.tile(architecture, width, part, float32=problem.dtype in ("float32", "tf32"))
        own, other = (tile.block_n, tile.block_m) if part == "dkv" else (tile.block_m, tile.block_n)
        made.append(Block(own, other, tile.warps, products, part))
    return made


NEEDS: dict[str, Any] = {"devices": ("cuda",), "modules": ("torch", "triton"), "check": _check, "compile_seconds": 2.0}


@kernel(
    "attention",
    launches=_launches("exact"),
    candidates=_candidates,
    computed_width=_exact_width,
    blocks=_blocks,
    **NEEDS,
)
def triton_exact(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Flash attention in Triton, computed as wide as head_dim rounded up to 16."""
    return _prepare(problem, inputs, "exact")


@kernel(
    "attention",
    launches=_launches("padded"),
    candidates=partial(_candidates, padded=True),
    computed_width=_padded_width,
    blocks=partial(_blocks, padded=True),
    **NEEDS,
)
def triton_padded(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """triton_exact with head_dim padded to the next power of two: what the common fallback costs."""
    return _prepare(problem, inputs, "padded")


@kernel("attention", launches=_launches("scalar_loads"), computed_width=_exact_width, blocks=_blocks, **NEEDS)
def triton_scalar_loads(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """triton_exact with run-time strides and no hint of their alignment: what narrow loads cost."""
    return _prepare(problem, inputs, "scalar_loads")


@kernel(
    "attention",
    launches=_launches("per_head_block"),
    computed_width=_exact_width,
    blocks=_blocks,
    **(NEEDS | {"directions": ("forward", "decode")}),
)
def triton_per_head_block(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """triton_exact with one block for each (batch, head), which walks over its query tiles in turn."""
    return _prepare(problem, inputs, "per_head_block")
