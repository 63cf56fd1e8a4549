"""From the sizes of a projection to the arguments of its launch.

The one place that knows them: `function.py` launches by it, and `triton_projection.py` describes by it what would
be launched, so that what is compiled for a GPU that is not there is what would run on it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from andrea_kernels.flash.tiles import computed_width, parts
from andrea_kernels.projection.tiles import Tile, tile_for

SIXTEEN_BYTES = 8  # elements of the narrowest dtype in the widest load
LENGTHS = ("batch", "seq_len")  # the arguments that Triton does not specialise on


class Launch(NamedTuple):
    """One launch: its tensors by name and its other arguments; useful products are multiply-adds that one
    iteration of its loop, in a full tile, does of those that the Problem asks for."""

    function: Any
    tensors: tuple[str, str, str]
    scalars: Mapping[str, int]
    constants: Mapping[str, Any]
    grid: tuple[int, int, int]
    tile: Tile
    useful_products: int


@dataclass(frozen=True)
class Sizes:
    """Of a projection into heads or out of them. dtype: as a Problem says it."""

    batch: int
    seq_len: int
    d_model: int
    n_head: int
    n_kv_head: int
    head_dim: int
    dtype: str
    architecture: int
    interpreted: bool = False

    @property
    def rows(self) -> int:
        return self.batch * self.seq_len

    @property
    def packed_heads(self) -> int:
        return self.n_head + 2 * self.n_kv_head

    @property
    def kind(self) -> str:
        """Of elements, as the tile table has it."""
        return {"float32": "ieee", "tf32": "tf32"}.get(self.dtype, "16bit")

    def tile(self) -> Tile:
        return tile_for(self.architecture, self.kind, self.rows)

    def common(self, w_row: int) -> dict[str, Any]:
        """Constants that all three kernels take."""
        tile = self.tile()
        return {
            "W_ROW": w_row, "D_MODEL": self.d_model, "N_HEAD": self.n_head, "HEAD_DIM": self.head_dim,
            "BLOCK_M": tile.block_m, "BLOCK_K": tile.block_k, "PRECISION": "tf32" if self.dtype == "tf32" else "ieee",
            "WIDEN": self.interpreted and self.dtype == "bfloat16",
        }  # fmt: skip


def fused(sizes: Sizes, x_strides: tuple[int, int], w_row: int) -> Launch:
    """x W_QKV, tiles over all packed columns. x_strides: of sequence and position, in elements."""
    from andrea_kernels.projection.device import project_fused

    tile = sizes.tile()
    packed = sizes.packed_heads * sizes.head_dim
    return Launch(
        function=project_fused,
        tensors=("x", "w", "out"),
        scalars={"batch": sizes.batch, "seq_len": sizes.seq_len, "x_batch": x_strides[0]},
        constants=sizes.common(w_row)
        | {"X_ROW": x_strides[1], "N_KV_HEAD": sizes.n_kv_head, "BLOCK_N": tile.block_n,
           "ALIGNMENT": math.gcd(SIXTEEN_BYTES, *x_strides)},
        grid=(-(-sizes.rows // tile.block_m) * -(-packed // tile.block_n), 1, 1),
        tile=tile,
        useful_products=tile.block_m * tile.block_n * tile.block_k,
    )  # fmt: skip


def per_head(sizes: Sizes, x_strides: tuple[int, int], w_row: int) -> Launch:
    """x W_QKV, one tile of columns for each head."""
    from andrea_kernels.projection.device import project_per_head

    tile = sizes.tile()
    if computed_width(sizes.head_dim) > 128:  # with more rows the accumulators spill (compiled, 8.0 to 12.0)
        tile = tile._replace(block_m=min(tile.block_m, 32 if sizes.kind == "ieee" else 64))
    return Launch(
        function=project_per_head,
        tensors=("x", "w", "out"),
        scalars={"batch": sizes.batch, "seq_len": sizes.seq_len, "x_batch": x_strides[0]},
        constants=sizes.common(w_row)
        | {"X_ROW": x_strides[1], "N_KV_HEAD": sizes.n_kv_head, "PARTS": parts(sizes.head_dim), "BLOCK_M": tile.block_m,
           "ALIGNMENT": math.gcd(SIXTEEN_BYTES, *x_strides)},
        grid=(-(-sizes.rows // tile.block_m), sizes.packed_heads, 1),
        tile=tile,
        useful_products=tile.block_m * sizes.head_dim * tile.block_k,
    )  # fmt: skip


def out(sizes: Sizes, heads_strides: tuple[int, int, int], w_row: int) -> Launch:
    """The heads times W_O. heads_strides: of sequence, head and position, in elements."""
    from andrea_kernels.projection.device import project_out

    tile = sizes.tile()
    return Launch(
        function=project_out,
        tensors=("heads", "w", "out"),
        scalars={"batch": sizes.batch, "seq_len": sizes.seq_len, "heads_batch": heads_strides[0],
                 "heads_head": heads_strides[1]},
        constants=sizes.common(w_row)
        | {"HEADS_ROW": heads_strides[2], "BLOCK_N": tile.block_n,
           "ALIGNMENT": math.gcd(SIXTEEN_BYTES, *heads_strides)},
        grid=(-(-sizes.rows // tile.block_m) * -(-sizes.d_model // tile.block_n), 1, 1),
        tile=tile,
        useful_products=tile.block_m * tile.block_n * tile.block_k,
    )  # fmt: skip
