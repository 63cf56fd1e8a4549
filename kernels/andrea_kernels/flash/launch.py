"""From the sizes of an attention call to the arguments of its launches.

The one place that knows them: `function.py` launches by it, and `triton_attention.py` describes by it what
would be launched, so that what is compiled for a GPU that is not there is what would run on it.
"""

import math
from collections.abc import Callable, Mapping
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from andrea_kernels.flash.tiles import Tile, computed_width, parts, tile

TENSORS = ("q", "k", "v", "out", "do", "dq", "dk", "dv")  # those that have strides
LENGTHS = ("seq_len", "kv_len")  # the arguments that Triton does not specialise on
VARIANTS = ("exact", "padded", "scalar_loads", "per_head_block")
LARGEST_HEAD_DIM = 256
SIXTEEN_BYTES = 8  # elements of the narrowest dtype in the widest load
PROVEN_ELEMENTS = 16  # Triton compiles a run-time stride anew where it is a multiple of this

LOG2_E = math.log2(math.e)
# A pass over memory: rows enough for 16-byte loads by every thread, blocks enough for every SM.
DELTA_TILE = Tile(64, 64, 4, 1)

Strides = tuple[int, int, int]  # of batch, head and row, in elements


@dataclass(frozen=True)
class Call:
    """Sizes, dtype and memory layout of one attention call.

    dtype: torch's name of it. precision: of float32 products, "ieee" or "tf32". strides: of each tensor by
    name, as far as the launch reads or writes it; their last one is 1. aligned: whether the addresses of all
    tensors are multiples of 16 bytes, as torch allocates them.
    """

    batch: int
    n_head: int
    n_kv_head: int
    seq_len: int
    kv_len: int
    head_dim: int
    dtype: str
    precision: str
    causal: bool
    scale: float
    variant: str
    strides: Mapping[str, Strides]
    emulate_bf16: bool = False
    aligned: bool = True

    @property
    def padded(self) -> bool:
        return self.variant == "padded"

    def tile(self, architecture: int, direction: str) -> Tile:
        width = computed_width(self.head_dim, padded=self.padded)
        return tile(architecture, width, direction, float32=self.dtype == "float32")

    def described(self, chosen: Tile, tensors: tuple[str, ...]) -> bool:
        """Whether a launch with this tile reads these tensors by descriptors, which need rows, heads and addresses
        that are aligned to 16 bytes; without the hint (scalar_loads) only what Triton can prove to be so counts."""
        step = PROVEN_ELEMENTS if self.variant == "scalar_loads" else SIXTEEN_BYTES
        strides = (stride for name in tensors for stride in self.strides[name])
        return chosen.descriptors and self.aligned and all(stride % step == 0 for stride in strides)


@dataclass(frozen=True)
class Launch:
    """One launch: its tensors by name, its other arguments, its constants, its grid and its tile.

    matrix_products: of block_m x block_n x head_dim in one iteration of its loop. part: which launch of
    several it is."""

    function: Any
    tensors: tuple[str, ...]
    scalars: Mapping[str, int | float]
    constants: Mapping[str, Any]
    grid: tuple[int, int, int]
    tile: Tile
    matrix_products: int
    part: str

    def bind(self, tensors: Mapping[str, Any]) -> Callable[[], None]:
        """The launch on these tensors, with nothing left to work out when it is called."""
        import triton.language as tl

        arguments = [tensors[name] for name in self.tensors]
        constants = {  # row strides are constants in some launches only, so the signature can't say so
            name: tl.constexpr(value) if name.endswith("_row") else value for name, value in self.constants.items()
        }
        launcher = self.function[self.grid]
        if 0 in self.grid:
            return lambda: None

        def launch() -> None:
            launcher(*arguments, **self.scalars, **constants,
                     num_warps=self.tile.warps, num_stages=self.tile.stages)  # fmt: skip

        return with_scratch(launch, arguments[0].device) if constants.get("DESCRIPTORS") else launch


def with_scratch(launch: Callable[[], None], device: Any) -> Callable[[], None]:
    """`launch` with device memory for the descriptors that its blocks write, allocated once and kept.

    Triton asks a context variable for it: a context of our own leaves the caller's alone, and serves the thread in
    which autograd runs backward too."""
    import torch
    import triton

    @cache
    def allocate(size: int, alignment: int, stream: int | None) -> torch.Tensor:
        return torch.empty(size, dtype=torch.int8, device=device)

    context = copy_context()
    context.run(triton.set_allocator, allocate)
    return partial(context.run, launch)


def launches(call: Call, architecture: int, direction: str) -> list[Launch]:
    """The launches of one Problem's direction, in their order."""
    backward = [delta, dkv, dq] if direction in ("backward", "forward_backward") else []
    makers = backward if direction == "backward" else [forward, *backward]
    return [make(call, architecture) for make in makers]


def forward(call: Call, architecture: int) -> Launch:
    """out and log_sum."""
    from andrea_kernels.flash.forward import attention_forward

    chosen = call.tile(architecture, "forward")
    per_head = call.variant == "per_head_block"
    scalars, constants = _common(call, ("q", "k", "v", "out"), chosen)
    scalars["scale_log2"] = call.scale * LOG2_E
    constants["BLOCK_PER_HEAD"] = per_head
    constants["DESCRIPTORS"] = call.described(chosen, ("k", "v"))
    tiles = -(-call.seq_len // chosen.block_m)
    return Launch(
        function=attention_forward,
        tensors=("q", "k", "v", "out", "log_sum"),
        scalars=scalars,
        constants=constants,
        grid=(min(tiles, 1) if per_head else tiles, call.n_head, call.batch),
        tile=chosen,
        matrix_products=2,
        part="forward",
    )


def delta(call: Call, architecture: int) -> Launch:
    """delta, which dkv and dq read."""
    from andrea_kernels.flash.backward import attention_delta

    scalars, constants = _common(call, ("out", "do"), DELTA_TILE)
    return Launch(
        function=attention_delta,
        tensors=("out", "do", "delta"),
        scalars=scalars,
        constants=constants,
        grid=(-(-call.seq_len // DELTA_TILE.block_m), call.n_head, call.batch),
        tile=DELTA_TILE,
        matrix_products=0,
        part="delta",
    )


def dkv(call: Call, architecture: int) -> Launch:
    """dk and dv."""
    from andrea_kernels.flash.backward import attention_dkv

    chosen = call.tile(architecture, "dkv")
    scalars, constants = _common(call, ("q", "k", "v", "do", "dk", "dv"), chosen)
    constants["DESCRIPTORS"] = call.described(chosen, ("q", "do"))
    return Launch(
        function=attention_dkv,
        tensors=("q", "k", "v", "do", "log_sum", "delta", "dk", "dv"),
        scalars=scalars | {"scale": call.scale, "scale_log2": call.scale * LOG2_E},
        constants=constants,
        grid=(-(-call.kv_len // chosen.block_n), call.n_kv_head, call.batch),
        tile=chosen,
        matrix_products=4,
        part="dkv",
    )


def dq(call: Call, architecture: int) -> Launch:
    """dq."""
    from andrea_kernels.flash.backward import attention_dq

    chosen = call.tile(architecture, "dq")
    scalars, constants = _common(call, ("q", "k", "v", "do", "dq"), chosen)
    constants["DESCRIPTORS"] = call.described(chosen, ("k", "v"))
    return Launch(
        function=attention_dq,
        tensors=("q", "k", "v", "do", "log_sum", "delta", "dq"),
        scalars=scalars | {"scale": call.scale, "scale_log2": call.scale * LOG2_E},
        constants=constants,
        grid=(-(-call.seq_len // chosen.block_m), call.n_head, call.batch),
        tile=chosen,
        matrix_products=3,
        part="dq",
    )


def contiguous_strides(batch: int, heads: int, rows: int, head_dim: int) -> Strides:
    """Strides of batch, head and row of a contiguous tensor of this shape."""
    return heads * rows * head_dim, rows * head_dim, head_dim


def _common(call: Call, tensors: tuple[str, ...], chosen: Tile) -> tuple[dict[str, int | float], dict[str, Any]]:
    """Strides and lengths, and the constants that all attention kernels share."""
    scalars: dict[str, int | float] = {"seq_len": call.seq_len, "kv_len": call.kv_len}
    constants: dict[str, Any] = {
        "GROUP": call.n_head // call.n_kv_head,
        "HEAD_DIM": call.head_dim,
        "PARTS": parts(call.head_dim, padded=call.padded),
        "CAUSAL": call.causal,
        "BLOCK_M": chosen.block_m,
        "BLOCK_N": chosen.block_n,
        "PRECISION": call.precision,
        "EMULATE_BF16": call.emulate_bf16,
        "ALIGNMENT": 1,
    }
    hinted = call.variant != "scalar_loads"
    if hinted:
        outer = [stride for name in tensors for stride in call.strides[name][:2]]
        constants["ALIGNMENT"] = math.gcd(SIXTEEN_BYTES, *outer)
    for name in tensors:
        batch, head, row = call.strides[name]
        scalars |= {f"{name}_batch": batch, f"{name}_head": head}
        # A constant row stride tells the compiler its alignment, and folds addresses into the loads.
        (constants if hinted else scalars)[f"{name}_row"] = row
    return scalars, constants
