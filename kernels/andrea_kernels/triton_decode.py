"""Attention of one new token, or a few, against a long KV cache: Triton, split over the keys.

The idea, its source, what it trades and its limits: flash/decode.py. A query's keys are split over as many blocks
as fill the GPU, and a second launch puts the parts together. head_dim up to 256, computed as wide as head_dim
rounded up to 16; float32 products are exact ("ieee", without tensor cores) unless the Problem says tf32.

K and V are read anew for each tile of 16 to 64 rows (query heads of a group times seq_len): for prompts,
triton_exact is the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from andrea_bench.errors import Unsupported
from andrea_bench.kernel import Candidate, TritonLaunch, Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem
from andrea_kernels.devices import architecture as architecture_of
from andrea_kernels.devices import interpreted
from andrea_kernels.flash import decode_tiles
from andrea_kernels.flash.launch import LARGEST_HEAD_DIM, LOG2_E, SIXTEEN_BYTES, Strides, contiguous_strides
from andrea_kernels.flash.tiles import computed_width, parts

if TYPE_CHECKING:
    from torch import Tensor

LOWEST_ARCHITECTURE = 80
MOST_SPLITS = 128
# A split shorter than this should be read in less time than its launch and its partial result take. Not measured:
# reckoned from some 5 us a launch, and 256 keys x (K and V) x 128 x 2 bytes = 131 kB in 4 us at the bandwidth of one
# SM (an H200's 4.8 TB/s over 132).
FEWEST_KEYS_PER_SPLIT = 256
# What a GPU that is not there is taken to have: the SMs of A100, RTX 3090, RTX 4090, H100, B200, RTX 5090.
SMS = {80: 108, 86: 82, 89: 128, 90: 132, 100: 148, 120: 170}
# Blocks per SM that the splits aim at, one wave of all that shared memory holds (see decode_tiles.py): while one waits
# for memory another computes.
BLOCKS_PER_SM = 2
TRITON_NAMES = {"float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "tf32": "fp32"}


def choose_splits(blocks: int, kv_len: int, sms: int) -> int:
    """Over how many blocks the keys of each of `blocks` tiles of rows are split."""
    wanted = -(-BLOCKS_PER_SM * sms // max(blocks, 1))
    return max(1, min(wanted, kv_len // FEWEST_KEYS_PER_SPLIT, MOST_SPLITS))


@dataclass(frozen=True)
class Call:
    """Sizes, dtype and memory layout of one call. dtype: as a Problem says it; strides: of q, k and v, in
    elements, of batch, head and row. splits: None for as many as choose_splits says."""

    batch: int
    n_head: int
    n_kv_head: int
    seq_len: int
    kv_len: int
    head_dim: int
    dtype: str
    causal: bool
    scale: float
    strides: Mapping[str, Strides]
    architecture: int
    sms: int
    splits: int | None = None
    emulate_bf16: bool = False

    def arguments(self) -> Arguments:
        """What the two launches take."""
        rows = self.n_head // self.n_kv_head * self.seq_len  # that share a key head
        element_bytes = ELEMENT_BYTES[self.dtype]
        tile = decode_tiles.tile(self.architecture, computed_width(self.head_dim), element_bytes)
        block_m = min(tile.most_rows, max(16, 1 << (rows - 1).bit_length()))
        row_tiles = self.batch * self.n_kv_head * -(-rows // block_m)
        splits = self.splits or choose_splits(row_tiles, self.kv_len, self.sms)
        keys_per_split = -(-self.kv_len // (splits * tile.block_n)) * tile.block_n
        scalars: dict[str, int | float] = {}
        constants: dict[str, Any] = {}
        for name in ("q", "k", "v"):
            scalars[f"{name}_batch"], scalars[f"{name}_head"], constants[f"{name}_row"] = self.strides[name]
        outer = [stride for name in ("q", "k", "v") for stride in self.strides[name][:2]]
        scalars |= {"n_kv_head": self.n_kv_head, "seq_len": self.seq_len, "kv_len": self.kv_len, "splits": splits,
                    "keys_per_split": keys_per_split, "scale_log2": self.scale * LOG2_E}  # fmt: skip
        constants |= {
            "GROUP": self.n_head // self.n_kv_head, "HEAD_DIM": self.head_dim, "PARTS": parts(self.head_dim),
            "CAUSAL": self.causal, "BLOCK_M": block_m, "BLOCK_N": tile.block_n,
            "PRECISION": "tf32" if self.dtype == "tf32" else "ieee",
            "ALIGNMENT": math.gcd(SIXTEEN_BYTES, *outer), "EMULATE_BF16": self.emulate_bf16,
        }  # fmt: skip
        reduce_constants = {
            "HEAD_DIM": self.head_dim, "WIDTH": 1 << (self.head_dim - 1).bit_length(),
            "ALL_SPLITS": 1 << (splits - 1).bit_length(), "EMULATE_BF16": self.emulate_bf16,
        }  # fmt: skip
        return Arguments(tile, splits, row_tiles * splits, scalars, constants, reduce_constants, min(rows, block_m))


class Arguments(NamedTuple):
    """Of both launches: tile, splits, blocks of the first; scalars and constants; rows of a tile that count."""

    tile: decode_tiles.Tile
    splits: int
    blocks: int
    scalars: Mapping[str, int | float]
    constants: Mapping[str, Any]
    reduce_constants: Mapping[str, Any]
    rows: int


def decode_attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, splits: int | None = None
) -> Tensor:
    """softmax(scale Q K^T) V for a few queries against many keys; forward only.

    q: (batch, n_head, seq_len, head_dim). k, v: (batch, n_kv_head, kv_len, head_dim), n_kv_head a divisor of
    n_head. float16, bfloat16 or float32, all alike, on one CUDA device (CPU tensors with TRITON_INTERPRET=1), any
    strides with a last one of 1. Returns (batch, n_head, seq_len, head_dim), contiguous.

    causal: aligned bottom-right, the last query sees every key (torch's `is_causal` is top-left); a query that sees
    no key gives 0. scale: by default 1 / sqrt(head_dim). splits: over how many blocks the keys are split, 1 to
    128; by default as many as fill the GPU. Raises ValueError, naming the argument and what it must be.
    """
    import torch

    wants_gradient = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v))
    if wants_gradient:
        raise ValueError("q, k and v must not require gradients here: decoding is forward only; attention() has them")
    if splits is not None and not 1 <= splits <= MOST_SPLITS:
        raise ValueError(f"splits must be 1 to {MOST_SPLITS}, not {splits}")
    return prepare_decode(q, k, v, causal=causal, scale=scale, splits=splits)()


def prepare_decode(
    q: Tensor, k: Tensor, v: Tensor, *,
    causal: bool, scale: float | None = None, splits: int | None = None, tf32: bool = False,
) -> Callable[[], Tensor]:  # fmt: skip
    """The launches alone: what they return, when called, is one tensor, written anew each time."""
    import torch

    from andrea_kernels.flash import function

    function.check(q, k, v, "exact")
    architecture = architecture_of(q.device)
    (batch, n_head, seq_len, head_dim), (_, n_kv_head, kv_len, _) = q.shape, k.shape
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    if out.numel() == 0 or kv_len == 0:
        return out.zero_
    on_gpu = q.device.type == "cuda"
    made = Call(
        batch=batch, n_head=n_head, n_kv_head=n_kv_head, seq_len=seq_len, kv_len=kv_len, head_dim=head_dim,
        dtype="tf32" if tf32 else str(q.dtype).removeprefix("torch."), causal=causal,
        scale=head_dim**-0.5 if scale is None else scale,
        strides={name: function.outer_strides(t) for name, t in (("q", q), ("k", k), ("v", v))},
        architecture=architecture,
        sms=torch.cuda.get_device_properties(q.device).multi_processor_count if on_gpu else 1,
        splits=splits, emulate_bf16=interpreted() and q.dtype == torch.bfloat16,
    ).arguments()  # fmt: skip
    partial = out
    if made.splits > 1:
        partial = torch.empty((*q.shape[:3], made.splits, head_dim), dtype=torch.float32, device=q.device)
    log_sum = torch.empty((*q.shape[:3], made.splits), dtype=torch.float32, device=q.device)
    return lambda: _launch(made, q, k, v, partial, log_sum, out)


def _launch(made: Arguments, q: Tensor, k: Tensor, v: Tensor, partial: Tensor, log_sum: Tensor, out: Tensor) -> Tensor:
    import contextlib

    import torch
    import triton.language as tl

    from andrea_kernels.flash.decode import decode_reduce, decode_split

    constants = {n: tl.constexpr(v) if n.endswith("_row") else v for n, v in made.constants.items()}
    # Triton launches on the current device, which need not be that of the tensors.
    with torch.cuda.device(q.device) if q.is_cuda else contextlib.nullcontext():
        decode_split[(made.blocks,)](
            q, k, v, partial, log_sum, **made.scalars, **constants,
            num_warps=made.tile.warps, num_stages=made.tile.stages,
        )  # fmt: skip
        if made.splits > 1:
            decode_reduce[(out.numel() // out.shape[-1],)](
                partial, log_sum, out, made.splits, **made.reduce_constants, num_warps=4
            )
    return out


def _launches(problem: Problem, compute_capability: str) -> list[TritonLaunch]:
    from andrea_kernels.flash.decode import decode_reduce, decode_split

    architecture = int(compute_capability.replace(".", ""))
    queries = contiguous_strides(problem.batch, problem.n_head, problem.seq_len, problem.head_dim)
    keys = contiguous_strides(problem.batch, problem.n_kv_head, problem.kv_len, problem.head_dim)
    made = Call(
        batch=problem.batch, n_head=problem.n_head, n_kv_head=problem.n_kv_head, seq_len=problem.seq_len,
        kv_len=problem.kv_len, head_dim=problem.head_dim, dtype=problem.dtype, causal=problem.causal,
        scale=problem.head_dim**-0.5, strides={"q": queries, "k": keys, "v": keys}, architecture=architecture,
        sms=SMS[max((known for known in SMS if known <= architecture), default=min(SMS))],
    ).arguments()  # fmt: skip
    element = f"*{TRITON_NAMES[problem.dtype]}"
    partial = "*fp32" if made.splits > 1 else element
    signature = {"q": element, "k": element, "v": element, "out": partial, "log_sum": "*fp32"}
    for name, value in made.scalars.items():
        signature[name] = "fp32" if isinstance(value, float) else "i32" if value < 2**31 else "i64"
    strides = [name for name in made.scalars if name.endswith(("_batch", "_head")) and name != "n_kv_head"]
    split = TritonLaunch(
        function=decode_split, signature=signature, constexprs=made.constants,
        num_warps=made.tile.warps, num_stages=made.tile.stages, grid=(made.blocks, 1, 1),
        part="split" if made.splits > 1 else None,
        divisible_by_16=("q", "k", "v", "out", "log_sum", *(n for n in strides if made.scalars[n] % 16 == 0)),
        useful_mma_flops=2 * 2 * made.rows * made.tile.block_n * problem.head_dim,
        tile={"block_m": made.constants["BLOCK_M"], "block_n": made.tile.block_n, "splits": made.splits},
    )  # fmt: skip
    if made.splits == 1:
        return [split]
    reduce = TritonLaunch(
        function=decode_reduce,
        signature={"partial": "*fp32", "log_sum": "*fp32", "out": element, "splits": "i32"},
        constexprs=made.reduce_constants, num_warps=4, num_stages=3,
        grid=(problem.batch * problem.n_head * problem.seq_len, 1, 1), part="reduce",
        divisible_by_16=("partial", "log_sum", "out"),
    )  # fmt: skip
    return [split, reduce]


def _candidates(problem: Problem, compute_capability: str) -> list[Candidate]:
    architecture = int(compute_capability.replace(".", ""))
    width, element_bytes = computed_width(problem.head_dim), ELEMENT_BYTES[problem.dtype]
    key = (architecture, width, element_bytes)
    part = _launches(problem, compute_capability)[0].part
    return [
        Candidate(part, key, f"{key}: Tile{tuple(tile)},", partial(decode_tiles.trying, tile))
        for tile in decode_tiles.candidates(*key)
    ]


def _check(problem: Problem, device: str) -> str | None:
    if problem.head_dim > LARGEST_HEAD_DIM:
        return f"does head_dim up to {LARGEST_HEAD_DIM}, not {problem.head_dim}"
    return None


def _partial_bytes(problem: Problem) -> int:
    rows = problem.batch * problem.n_head * problem.seq_len
    return 4 * rows * (problem.head_dim + 1) * min(MOST_SPLITS, problem.kv_len // FEWEST_KEYS_PER_SPLIT + 1)


@kernel(
    "attention", devices=("cuda",), modules=("torch", "triton"), directions=("decode",), check=_check,
    workspace_bytes=_partial_bytes, compile_seconds=2.0, launches=_launches, candidates=_candidates,
    computed_width=lambda problem: computed_width(problem.head_dim),
)  # fmt: skip
def triton_decode(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """Attention of a few queries in Triton, split over the keys and put together by a second launch."""

    found = architecture_of(inputs["q"].device)
    if found < LOWEST_ARCHITECTURE:
        raise Unsupported(f"needs compute capability 8.0 or newer, not {found // 10}.{found % 10}")
    run = prepare_decode(inputs["q"], inputs["k"], inputs["v"], causal=problem.causal, tf32=problem.dtype == "tf32")
    return Work(run=run, backend="triton_decode")
