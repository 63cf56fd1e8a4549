"""Projections into heads and out of them: device code.

The idea: a matrix product does not care where its rows and columns lie. So the layout that attention wants,
`(batch, heads, seq_len, head_dim)`, is written, or read, by the product itself, and the reshape, transpose and
copy around it fall away. Libraries do the same with permuting epilogues (AITemplate's gemm_rcr_permute, CUTLASS
example 39_gemm_permute). The product is the usual one: tiles of rows and columns, a loop over what is summed,
float32 accumulators, tiles taken in groups of rows so that neighbours share operands in L2 (Triton's matmul
tutorial).

- `project_fused`: X W_QKV in one launch, tiles over all packed columns, heads and Q, K, V alike; the tile's
  columns are looked up one by one when it is stored.
- `project_per_head`: the same product with one head's columns a tile, head_dim rounded up to 16 wide, in
  power-of-two parts (72 is 64 + 16): what the grid "one block per head" costs. X is read once for each head.
- `project_out`: what is summed are (head, column in the head) pairs, looked up as the loop goes.

What they trade: a division by head_dim (a constant) for each column stored or loaded, and no TMA, for the columns
of a tile needn't lie evenly spaced. Widths are `tl.constexpr`: compiled anew for each model, and alignment is
known, so that loads are 16 bytes wide wherever addresses allow. ALIGNMENT promises how many elements the run-time
strides are a multiple of. Offsets are 64 bits wide.

Known limits: no bias, no split over the sum (few rows leave SMs idle), no persistent blocks.
"""
# Device code: Triton gives its arguments their types, and has no starred tuples.
# mypy: disable-error-code="no-untyped-def, assignment"
# ruff: noqa: RUF005

import triton
import triton.language as tl

# Rows of tiles that are worked on together, so that their W tiles stay in L2.
TILE_ROWS_TOGETHER = tl.constexpr(8)


@triton.jit
def tile_of_block(rows, columns, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    """Row and column of this block's tile: down TILE_ROWS_TOGETHER rows, then to the next column."""
    block = tl.program_id(0)
    tile_rows = tl.cdiv(rows, BLOCK_M)
    in_band = TILE_ROWS_TOGETHER * tl.cdiv(columns, BLOCK_N)
    first = block // in_band * TILE_ROWS_TOGETHER
    height = tl.minimum(tile_rows - first, TILE_ROWS_TOGETHER)
    return first + block % in_band % height, block % in_band // height


@triton.jit
def rows_of_tile(tile, rows, seq_len, BLOCK_M: tl.constexpr):
    """Sequence and position of the tile's rows, (BLOCK_M,) each in 64 bits, and which of them are there.

    Rows beyond the last are the last again: they may be loaded without a mask."""
    row = tile.to(tl.int64) * BLOCK_M + tl.arange(0, BLOCK_M)
    clamped = tl.minimum(row, rows - 1)
    return clamped // seq_len, clamped % seq_len, row < rows


@triton.jit
def load_tile(pointers, down, across, MASK_DOWN: tl.constexpr, MASK_ACROSS: tl.constexpr, WIDEN: tl.constexpr):
    """A tile (M, N); zeros where `down` (M,) or `across` (N,) is false, as far as MASK_ says to look.

    WIDEN: as float32. For the interpreter, whose product of bfloat16 operands is wrong; nothing is lost."""
    if MASK_DOWN and MASK_ACROSS:
        tile = tl.load(pointers, mask=down[:, None] & across[None, :], other=0.0)
    elif MASK_DOWN:
        tile = tl.load(pointers, mask=down[:, None], other=0.0)
    elif MASK_ACROSS:
        tile = tl.load(pointers, mask=across[None, :], other=0.0)
    else:
        tile = tl.load(pointers)
    if WIDEN:
        tile = tile.to(tl.float32)
    return tile


# Lengths are not specialised on, so that one binary serves all of them.
@triton.jit(do_not_specialize=["batch", "seq_len"])
def project_fused(
    x, w, out, batch, seq_len, x_batch,
    X_ROW: tl.constexpr, W_ROW: tl.constexpr, D_MODEL: tl.constexpr, N_HEAD: tl.constexpr, N_KV_HEAD: tl.constexpr,
    HEAD_DIM: tl.constexpr, ALIGNMENT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """out = x w, where x is (batch, seq_len, D_MODEL), w (D_MODEL, (N_HEAD + 2 N_KV_HEAD) HEAD_DIM), and out is q,
    k and v one after another, each (batch, heads, seq_len, HEAD_DIM). Strides in elements.
    Grid: one block a tile of (batch seq_len) rows and packed columns."""
    PACKED: tl.constexpr = (N_HEAD + 2 * N_KV_HEAD) * HEAD_DIM
    rows = batch.to(tl.int64) * seq_len
    tile_row, tile_column = tile_of_block(rows, PACKED, BLOCK_M, BLOCK_N)
    sequence, position, row_there = rows_of_tile(tile_row, rows, seq_len, BLOCK_M)
    column = tile_column.to(tl.int32) * BLOCK_N + tl.arange(0, BLOCK_N)  # of the packed width
    x_rows = x + tl.multiple_of(sequence * x_batch + position * X_ROW, ALIGNMENT)[:, None]
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, D_MODEL, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        x_tile = load_tile(x_rows + k[None, :], row_there, k < D_MODEL, False, D_MODEL % BLOCK_K != 0, WIDEN)
        w_tile = load_tile(w + k.to(tl.int64)[:, None] * W_ROW + column[None, :], k < D_MODEL, column < PACKED,
                           D_MODEL % BLOCK_K != 0, PACKED % BLOCK_N != 0, WIDEN)  # fmt: skip
        acc = tl.dot(x_tile, w_tile, acc, input_precision=PRECISION)
    # Where a column lies: in q, k or v, in a head of it, in a row of that.
    packed_head = column // HEAD_DIM
    is_q = packed_head < N_HEAD
    is_v = packed_head >= N_HEAD + N_KV_HEAD
    skipped_heads = tl.where(is_q, 0, tl.where(is_v, N_HEAD + N_KV_HEAD, N_HEAD))  # of the tensors before
    heads = tl.where(is_q, N_HEAD, N_KV_HEAD).to(tl.int64)
    head_elements = seq_len.to(tl.int64) * HEAD_DIM
    head_start = (skipped_heads * batch.to(tl.int64) + (packed_head - skipped_heads)) * head_elements
    offsets = (
        (head_start + column % HEAD_DIM)[None, :]
        + sequence[:, None] * (heads * head_elements)[None, :]
        + (position * HEAD_DIM)[:, None]
    )
    there = row_there[:, None] & (column < PACKED)[None, :]
    tl.store(out + offsets, acc.to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["batch", "seq_len"])
def project_per_head(
    x, w, out, batch, seq_len, x_batch,
    X_ROW: tl.constexpr, W_ROW: tl.constexpr, D_MODEL: tl.constexpr, N_HEAD: tl.constexpr, N_KV_HEAD: tl.constexpr,
    HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, ALIGNMENT: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """The same as project_fused. PARTS: (first column, width) of the power-of-two parts of a head.
    Grid: (tiles of batch seq_len rows, N_HEAD + 2 N_KV_HEAD)."""
    rows = batch.to(tl.int64) * seq_len
    sequence, position, row_there = rows_of_tile(tl.program_id(0), rows, seq_len, BLOCK_M)
    packed_head = tl.program_id(1)
    x_rows = x + tl.multiple_of(sequence * x_batch + position * X_ROW, ALIGNMENT)[:, None]
    accs = ()
    for i in tl.static_range(len(PARTS)):
        accs = accs + (tl.zeros((BLOCK_M, tl.constexpr(PARTS[i][1])), tl.float32),)
    for first in range(0, D_MODEL, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)
        x_tile = load_tile(x_rows + k[None, :], row_there, k < D_MODEL, False, D_MODEL % BLOCK_K != 0, WIDEN)
        w_rows = w + k.to(tl.int64)[:, None] * W_ROW + packed_head * HEAD_DIM
        sums = ()
        for i in tl.static_range(len(PARTS)):
            column = PARTS[i][0] + tl.arange(0, PARTS[i][1])  # of the head
            w_tile = load_tile(w_rows + column[None, :], k < D_MODEL, column < HEAD_DIM,
                               D_MODEL % BLOCK_K != 0, PARTS[i][0] + PARTS[i][1] > HEAD_DIM, WIDEN)  # fmt: skip
            sums = sums + (tl.dot(x_tile, w_tile, accs[i], input_precision=PRECISION),)
        accs = sums
    skipped_heads = 0  # of the tensors before this head's
    heads = N_HEAD
    if packed_head >= N_HEAD:
        skipped_heads = N_HEAD
        heads = N_KV_HEAD
    if packed_head >= N_HEAD + N_KV_HEAD:
        skipped_heads = N_HEAD + N_KV_HEAD
    head_elements = seq_len.to(tl.int64) * HEAD_DIM
    out += (skipped_heads * batch.to(tl.int64) + (packed_head - skipped_heads)) * head_elements
    out_rows = out + (sequence * (heads * head_elements) + position * HEAD_DIM)[:, None]
    for i in tl.static_range(len(PARTS)):
        column = PARTS[i][0] + tl.arange(0, PARTS[i][1])
        there = row_there[:, None] & (column < HEAD_DIM)[None, :]
        tl.store(out_rows + column[None, :], accs[i].to(out.dtype.element_ty), mask=there)


@triton.jit(do_not_specialize=["batch", "seq_len"])
def project_out(
    heads, w, out, batch, seq_len, heads_batch, heads_head,
    HEADS_ROW: tl.constexpr, W_ROW: tl.constexpr, D_MODEL: tl.constexpr, N_HEAD: tl.constexpr,
    HEAD_DIM: tl.constexpr, ALIGNMENT: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr, PRECISION: tl.constexpr, WIDEN: tl.constexpr,
):  # fmt: skip
    """out (batch, seq_len, D_MODEL) = the heads (batch, N_HEAD, seq_len, HEAD_DIM) side by side, times
    w (N_HEAD HEAD_DIM, D_MODEL). Strides in elements. Grid: one block a tile of rows and columns of out."""
    WIDTH: tl.constexpr = N_HEAD * HEAD_DIM
    rows = batch.to(tl.int64) * seq_len
    tile_row, tile_column = tile_of_block(rows, D_MODEL, BLOCK_M, BLOCK_N)
    sequence, position, row_there = rows_of_tile(tile_row, rows, seq_len, BLOCK_M)
    column = tile_column.to(tl.int32) * BLOCK_N + tl.arange(0, BLOCK_N)
    row_starts = heads + tl.multiple_of(sequence * heads_batch + position * HEADS_ROW, ALIGNMENT)[:, None]
    heads_head = tl.multiple_of(heads_head.to(tl.int64), ALIGNMENT)
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for first in range(0, WIDTH, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)  # of the concatenated width
        in_heads = (k // HEAD_DIM) * heads_head + k % HEAD_DIM
        a_tile = load_tile(row_starts + in_heads[None, :], row_there, k < WIDTH, False, WIDTH % BLOCK_K != 0, WIDEN)
        w_tile = load_tile(w + k.to(tl.int64)[:, None] * W_ROW + column[None, :], k < WIDTH, column < D_MODEL,
                           WIDTH % BLOCK_K != 0, D_MODEL % BLOCK_N != 0, WIDEN)  # fmt: skip
        acc = tl.dot(a_tile, w_tile, acc, input_precision=PRECISION)
    offsets = (sequence * seq_len + position)[:, None] * D_MODEL + column[None, :]
    tl.store(out + offsets, acc.to(out.dtype.element_ty), mask=row_there[:, None] & (column < D_MODEL)[None, :])
