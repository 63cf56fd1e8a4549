"""Kernel families: how the kernels of one family cut attention into tiles, and how wide they compute.

Widths and tiles are those of the implementations' sources (flash-attention 0251105a, PyTorch 001f694a,
xformers 7a3838f3, torch 2.14.1's flex templates, the Triton tutorial at 003da478); the project's own kernels are
asked themselves.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from andrea_bench.errors import Unsupported
from andrea_bench.kernel import Block, Kernel, find_kernel
from andrea_bench.problem import Problem

Instruction = Literal["best", "mma.sync"]

# The share of the tensor peak that the older instruction mma.sync reaches where there is a newer one.
# 9.0: measured by microbenchmark (arXiv 2402.13499, recalled). 10.0: Ampere's rate assumed, not known.
MMA_SYNC_SHARE = {"9.0": 0.62, "10.0": 0.25}


@dataclass(frozen=True)
class AttentionFamily:
    """One implementation of attention in tiles.

    width: head_dim -> the width that its matrix instructions compute. tile: (compute capability, width,
    causal) -> rows of Q and of K/V in a block's tile, and its warps. instruction: `best` of the
    architecture (wgmma, tcgen05) or mma.sync on all. longest_first: whether causal blocks are launched in
    that order. one_block_per_head: a block walks all query tiles of its (batch, head). max_head_dim: the
    widest that it does. head_dim_step: of what head_dim must be a multiple. only_on: the compute
    capabilities that it is for (none: all). takes_turns_on: the compute capabilities where one block fills an
    SM and its warpgroups take turns, so that exp adds to the matrix products; the published figures at head_dim
    64, 128 and 256 show that. backward_products: matrix products per (query tile, key tile) of its backward
    pass, which is one launch; forward has two. kernel: of the project, whose own table of tiles is asked.
    """

    name: str
    width: Callable[[int], int]
    tile: Callable[[str, int, bool], tuple[int, int, int]]
    instruction: Instruction = "best"
    longest_first: bool = True
    one_block_per_head: bool = False
    max_head_dim: int = 256
    only_on: tuple[str, ...] = ()
    backward_products: int = 5
    takes_turns_on: tuple[str, ...] = ()
    head_dim_step: int = 1
    kernel: str | None = None

    def blocks(self, problem: Problem, compute_capability: str) -> list[Block]:
        """The launches of one pass (forward or backward). Raises Unsupported as computed_width does."""
        width = self.computed_width(problem.head_dim, compute_capability)
        if self.kernel is not None:
            own = find_kernel("attention", self.kernel).blocks
            assert own is not None
            return own(problem, compute_capability)
        rows, columns, warps = self.tile(compute_capability, width, problem.causal)
        return [Block(rows, columns, warps, self.backward_products if problem.direction == "backward" else 2)]

    def computed_width(self, head_dim: int, compute_capability: str) -> int:
        """Raises Unsupported for a head_dim or an architecture that the family does not do."""
        if self.only_on and compute_capability not in self.only_on:
            raise Unsupported(f"{self.name} is for compute capability {', '.join(self.only_on)}")
        if head_dim > self.max_head_dim:
            raise Unsupported(f"{self.name} does head_dim up to {self.max_head_dim}, not {head_dim}")
        if head_dim % self.head_dim_step:
            raise Unsupported(f"{self.name} needs head_dim to be a multiple of {self.head_dim_step}")
        return self.width(head_dim)

    def tensor_share(self, compute_capability: str) -> float:
        return 1.0 if self.instruction == "best" else MMA_SYNC_SHARE.get(compute_capability, 1.0)


def up_to(*buckets: int) -> Callable[[int], int]:
    """The least bucket that holds head_dim."""
    return lambda head_dim: next(bucket for bucket in buckets if bucket >= head_dim)


def multiple_of(step: int) -> Callable[[int], int]:
    return lambda head_dim: -(-head_dim // step) * step


def power_of_two(head_dim: int) -> int:
    return max(16, 1 << (head_dim - 1).bit_length())


def _flash_2_tile(compute_capability: str, width: int, causal: bool) -> tuple[int, int, int]:
    if width <= 64:
        return 128, 128, 4
    if width <= 96:
        return 128, 64, 4
    if width <= 128:
        if compute_capability in ("8.6", "8.9", "12.0"):
            return (64, 64, 4) if causal else (128, 32, 4)
        return 128, 64, 4
    return 128, 64, 8


def _flash_3_tile(compute_capability: str, width: int, causal: bool) -> tuple[int, int, int]:
    if width <= 64:
        return 192, 128 if causal else 192, 16
    if width <= 96:
        return 192, 144, 12
    if width <= 128:
        return 128, 128 if causal else 176, 12
    return 128, 112 if width <= 192 else 80, 12


def _cudnn_tile(compute_capability: str, width: int, causal: bool) -> tuple[int, int, int]:
    # Not published; taken to be as large as flash-attention's of the same generation.
    newer = compute_capability in ("9.0", "10.0")
    return (_flash_3_tile if newer else _flash_2_tile)(compute_capability, width, causal)


def _efficient_tile(compute_capability: str, width: int, causal: bool) -> tuple[int, int, int]:
    return (64, 64, 4) if width <= 64 else (64, 128, 8) if width <= 128 else (32, 128, 4)


def _tutorial_tile(compute_capability: str, width: int, causal: bool) -> tuple[int, int, int]:
    return 128, 64, 4 if width <= 64 else 8


def _flex_tile(compute_capability: str, width: int, causal: bool) -> tuple[int, int, int]:
    return (128, 64, 4) if width in (64, 128) else (64, 64, 4)


_FLASH_2 = AttentionFamily("flash_attention_2", up_to(32, 64, 96, 128, 192, 256), _flash_2_tile, "mma.sync")


def _efficient_width(head_dim: int) -> int:
    # Beyond 128 its output is accumulated in memory, 128 columns at a time.
    return up_to(64, 128)(head_dim) if head_dim <= 128 else multiple_of(128)(head_dim)


_EFFICIENT = AttentionFamily(
    "memory_efficient", _efficient_width, _efficient_tile, "mma.sync", max_head_dim=65536, head_dim_step=8
)


def _own(kernel: str, *, family: str = "triton", one_block_per_head: bool = False) -> AttentionFamily:
    """A kernel of the project: its width and its tiles are what it says of itself."""

    def width(head_dim: int) -> int:
        found: Kernel = find_kernel("attention", kernel)
        assert found.computed_width is not None
        return found.computed_width(Problem(n_head=1, head_dim=head_dim))

    return AttentionFamily(family, width, _tutorial_tile, one_block_per_head=one_block_per_head, kernel=kernel)


# Kernel name -> family. Names that are no kernel of the project are implementations that are only cited.
TILED: dict[str, AttentionFamily] = {
    "sdpa_flash": _FLASH_2,
    "flash_attn": _FLASH_2,
    "flash_attention_2": _FLASH_2,
    "flash_attention_3": AttentionFamily(
        "flash_attention_3", up_to(64, 96, 128, 192, 256), _flash_3_tile, only_on=("9.0",), takes_turns_on=("9.0",)
    ),
    "sdpa_cudnn": AttentionFamily("cudnn", multiple_of(16), _cudnn_tile, head_dim_step=8, takes_turns_on=("9.0",)),
    "sdpa_efficient": _EFFICIENT,
    "xformers": _EFFICIENT,
    "flashinfer": AttentionFamily("flashinfer", up_to(64, 128, 256), _flash_2_tile, "mma.sync"),
    "flex": AttentionFamily("flex", power_of_two, _flex_tile, longest_first=False),
    # The kernel of Triton's tutorial, which figures of "Triton" in others' papers are of.
    "triton_tutorial": AttentionFamily("triton_tutorial", power_of_two, _tutorial_tile),
    "triton_exact": _own("triton_exact"),
    "triton_padded": _own("triton_padded"),
    "triton_scalar_loads": _own("triton_scalar_loads", family="triton_scalar_loads"),
    "triton_per_head_block": _own("triton_per_head_block", one_block_per_head=True),
}

# Kernels that write the score matrix, and the passes over it of a causal mask that nothing fuses.
UNFUSED: dict[str, int] = {"eager": 1, "sdpa_math": 1, "compiled": 0}

# Kernels of decoding alone.
DECODE_ONLY = ("triton_decode",)

# Where torch prefers cuDNN's attention, with a cuDNN above 9.15 (PyTorch 001f694a, sdp_utils.cpp,
# check_prefer_cudnn_attention); up to this head_dim, as wider ones need a newer one still.
CUDNN_FIRST, CUDNN_HEAD_DIM = ("9.0", "10.0"), 128


def chosen_by_torch(problem: Problem, compute_capability: str) -> str:
    """The backend that scaled_dot_product_attention takes where none is forced: what sdp_utils.cpp prefers of
    those that can do it."""
    head_dim, half = problem.head_dim, problem.dtype in ("bfloat16", "float16")
    cudnn = compute_capability in CUDNN_FIRST and head_dim % 8 == 0 and head_dim <= CUDNN_HEAD_DIM
    if half and cudnn:
        return "sdpa_cudnn"
    if half and float(compute_capability) >= 8 and head_dim <= _FLASH_2.max_head_dim:
        return "sdpa_flash"  # torch pads what is no multiple of 8
    return "sdpa_math" if head_dim % (8 if half else 4) else "sdpa_efficient"
