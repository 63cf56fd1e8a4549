"""Flash attention, forward: device code.

The idea (FlashAttention-2, Dao 2023, arXiv 2307.08691): a block owns one tile of queries, walks over tiles of
keys and keeps, for each query, the running maximum and sum of its exponentials, so that the scores never
leave the chip (online softmax, Milakov and Gimelshein 2018, arXiv 1805.02867). Exponentials are exp2, which
the hardware has; log2(e) is folded into the scale.

What is particular here is the width. Triton's tensors are powers of two wide, and the usual way out is to pad
head_dim to the next one: 72 becomes 128. Here a row is a tuple of parts, each a power of two wide, that
together are head_dim rounded up to 16 wide, the step of a matrix instruction: 72 is 64 + 16, 112 is
64 + 32 + 16. Q K^T sums over the parts; P V has one accumulator for each. AMD's composed tensors (aotriton)
split in the same way.

What it trades: each part has loads and matrix instructions of its own, so narrow parts cost more instructions
for the same work, and a part 16 wide may load fewer than 16 bytes a thread. Row strides that come as
`tl.constexpr` compile anew for each, and give 16-byte loads wherever addresses allow: Triton itself proves the
alignment of a run-time stride only where it is a multiple of 16 elements (72 is not).

With DESCRIPTORS (compute capability 9.0, rows aligned to 16 bytes) the tiles that a loop walks over are copied by
the tensor memory accelerator: it works out addresses and bounds by itself, which frees registers, and fills with
zeros what lies beyond a matrix, so that a part 16 wide costs no narrower loads. What that trades: each block first
writes its descriptors to memory, which a short walk does not pay back.

Known limits: no dropout, mask, bias, window or soft-capping. Offsets are 64 bits wide.
"""

# Device code: Triton gives its arguments their types, and has no starred tuples.
# mypy: disable-error-code="no-untyped-def, assignment"
# ruff: noqa: RUF005

import triton
import triton.language as tl

# Below every score that is finite; not -inf, for inf - inf would be NaN in rows that see no key (yet).
LOWEST = tl.constexpr(-3.0e38)


@triton.jit
def narrow(x, dtype: tl.constexpr, EMULATE_BF16: tl.constexpr):
    """float32 x rounded to `dtype`, as an operand of a matrix product.

    EMULATE_BF16: round to bfloat16, to nearest even, but keep float32: for the interpreter, whose own cast
    truncates and whose product of bfloat16 operands is wrong."""
    if EMULATE_BF16:
        bits = x.to(tl.uint32, bitcast=True)
        rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
        return rounded.to(tl.float32, bitcast=True)
    return x.to(dtype)


@triton.jit
def head_offset(batch, batch_stride, head, head_stride, ALIGNMENT: tl.constexpr):
    """Elements before a head of a batch, 64 bits wide; hinted to be a multiple of ALIGNMENT where that is more
    than Triton may know (a hint of 1 would make it forget what it knows)."""
    offset = batch.to(tl.int64) * batch_stride + head.to(tl.int64) * head_stride
    if ALIGNMENT > 1:
        offset = tl.multiple_of(offset, ALIGNMENT)
    return offset


@triton.jit
def describe_rows(
    base, valid, row_stride,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """What `load_tile` reads one head's (valid, HEAD_DIM) matrix from: a tensor descriptor of a (BLOCK, width) box
    for each part, or, without DESCRIPTORS, the pointer `base` itself."""
    if DESCRIPTORS:
        source = ()
        for i in tl.static_range(len(PARTS)):
            box = tl.make_tensor_descriptor(
                base, shape=[valid, HEAD_DIM], strides=[row_stride, 1], block_shape=[BLOCK, tl.constexpr(PARTS[i][1])]
            )
            source = source + (box,)
    else:
        source = base
    return source


@triton.jit
def load_tile(
    source, first, valid, row_stride,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr,
    MASK_ROWS: tl.constexpr, EMULATE_BF16: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """load_rows from what describe_rows made."""
    if DESCRIPTORS:
        parts = ()
        for i in tl.static_range(len(PARTS)):
            part = source[i].load([first, PARTS[i][0]])  # zeros beyond the matrix
            if EMULATE_BF16:
                part = part.to(tl.float32)
            parts = parts + (part,)
    else:
        parts = load_rows(source, first, valid, row_stride, BLOCK, HEAD_DIM, PARTS, MASK_ROWS, EMULATE_BF16)
    return parts


@triton.jit
def load_rows(
    base, first, valid, row_stride,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr,
    MASK_ROWS: tl.constexpr, EMULATE_BF16: tl.constexpr,
):  # fmt: skip
    """Rows first .. first + BLOCK of one head's (rows, HEAD_DIM) matrix at `base`, as one tensor
    (BLOCK, width) for each (start, width) of PARTS. Zeros beyond HEAD_DIM and, if MASK_ROWS, beyond the
    `valid` rows."""
    rows = tl.arange(0, BLOCK)
    tile = base + tl.cast(first, tl.int64) * row_stride
    parts = ()
    for i in tl.static_range(len(PARTS)):
        columns = PARTS[i][0] + tl.arange(0, PARTS[i][1])
        pointers = tile + rows.to(tl.int64)[:, None] * row_stride + columns[None, :]  # (BLOCK, width)
        if MASK_ROWS:
            seen = (first + rows < valid)[:, None] & (columns < HEAD_DIM)[None, :]
            part = tl.load(pointers, mask=seen, other=0.0)
        elif PARTS[i][0] + PARTS[i][1] > HEAD_DIM:
            part = tl.load(pointers, mask=(columns < HEAD_DIM)[None, :], other=0.0)
        else:
            part = tl.load(pointers)
        if EMULATE_BF16:
            part = part.to(tl.float32)
        parts = parts + (part,)
    return parts


@triton.jit
def store_rows(
    base, parts, first, valid, row_stride,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, EMULATE_BF16: tl.constexpr,
):  # fmt: skip
    """The opposite of load_rows: write float32 parts in the dtype of `base`, valid rows and columns only."""
    rows = tl.arange(0, BLOCK)
    tile = base + tl.cast(first, tl.int64) * row_stride
    for i in tl.static_range(len(PARTS)):
        columns = PARTS[i][0] + tl.arange(0, PARTS[i][1])
        pointers = tile + rows.to(tl.int64)[:, None] * row_stride + columns[None, :]
        seen = (first + rows < valid)[:, None] & (columns < HEAD_DIM)[None, :]
        value = narrow(parts[i], base.dtype.element_ty, EMULATE_BF16)
        tl.store(pointers, value.to(base.dtype.element_ty), mask=seen)


@triton.jit
def zeros(BLOCK: tl.constexpr, PARTS: tl.constexpr):
    """A float32 accumulator (BLOCK, width) for each part."""
    parts = ()
    for i in tl.static_range(len(PARTS)):
        parts = parts + (tl.zeros((BLOCK, tl.constexpr(PARTS[i][1])), tl.float32),)
    return parts


@triton.jit
def dot_rows(a, b, PRECISION: tl.constexpr):
    """a b^T of two tuples of parts, (M, width) and (N, width): their products summed, (M, N) in float32."""
    product = tl.dot(a[0], tl.trans(b[0]), input_precision=PRECISION)
    for i in tl.static_range(1, len(a)):
        product = tl.dot(a[i], tl.trans(b[i]), product, input_precision=PRECISION)
    return product


@triton.jit
def add_product(acc, weights, b, PRECISION: tl.constexpr):
    """acc + weights b for each part: weights (M, N), b's parts (N, width), acc's parts (M, width)."""
    parts = ()
    for i in tl.static_range(len(acc)):
        parts = parts + (tl.dot(weights, b[i], acc[i], input_precision=PRECISION),)
    return parts


@triton.jit
def scale_rows(acc, factor):
    """Each row of each part times its factor; factor (M,)."""
    parts = ()
    for i in tl.static_range(len(acc)):
        parts = parts + (acc[i] * factor[:, None],)
    return parts


@triton.jit
def visible_keys(rows, keys, seq_len, kv_len, CAUSAL: tl.constexpr):
    """Which keys (N,) each query of rows (M,) sees: (M, N) of bool. Causal is aligned bottom-right."""
    seen = (keys < kv_len)[None, :]
    if CAUSAL:
        seen = seen & (keys[None, :] <= rows[:, None] + (kv_len - seq_len))
    return seen


@triton.jit
def walk_keys(
    acc, highest, total, q, k, v, first_row, first_key, last_key, seq_len, kv_len, k_row, v_row, scale_log2,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, PRECISION: tl.constexpr, EMULATE_BF16: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """Take in the keys first_key .. last_key, a multiple of BLOCK_N of them unless MASKED; k and v by describe_rows."""
    # Wide rows whose keys come 32 at a time are those that fill the registers. Without a causal mask one tile at most
    # is masked: there it is loaded without stages ahead.
    ONE_STAGE: tl.constexpr = MASKED and not CAUSAL and HEAD_DIM > 64 and BLOCK_N <= 32
    for start in tl.range(first_key, last_key, BLOCK_N, num_stages=1 if ONE_STAGE else None):
        k_tile = load_tile(k, start, kv_len, k_row, BLOCK_N, HEAD_DIM, PARTS, MASKED, EMULATE_BF16, DESCRIPTORS)
        scores = dot_rows(q, k_tile, PRECISION)  # (BLOCK_M, BLOCK_N)
        if MASKED:
            rows = first_row + tl.arange(0, BLOCK_M)
            keys = start + tl.arange(0, BLOCK_N)
            seen = visible_keys(rows, keys, seq_len, kv_len, CAUSAL)
            scores = tl.where(seen, scores * scale_log2, float("-inf"))
            new_highest = tl.maximum(highest, tl.max(scores, 1))  # (BLOCK_M,)
            weights = tl.exp2(scores - new_highest[:, None])
        else:
            # scale_log2 >= 0, so the largest score scaled is the largest scaled score: one fused
            # multiply-add a score, where scaling first would be two instructions.
            new_highest = tl.maximum(highest, tl.max(scores, 1) * scale_log2)
            weights = tl.exp2(scores * scale_log2 - new_highest[:, None])
        shrink = tl.exp2(highest - new_highest)
        total = total * shrink + tl.sum(weights, 1)
        v_tile = load_tile(v, start, kv_len, v_row, BLOCK_N, HEAD_DIM, PARTS, MASKED, EMULATE_BF16, DESCRIPTORS)
        weights = narrow(weights, v_tile[0].dtype, EMULATE_BF16)
        acc = add_product(scale_rows(acc, shrink), weights, v_tile, PRECISION)
        highest = new_highest
    return acc, highest, total


@triton.jit
def attend_tile(
    q, k, v, out, log_sum, tile, seq_len, kv_len, q_row, k_row, v_row, out_row, scale_log2,
    HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr, PRECISION: tl.constexpr, EMULATE_BF16: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """One tile of BLOCK_M queries of one head: q, out and log_sum point to that head, k and v are of describe_rows."""
    first_row = tile * BLOCK_M
    last_key = kv_len
    unmasked = kv_len  # keys before this one are seen by every query of the tile
    if CAUSAL:
        last_key = tl.maximum(tl.minimum(kv_len, first_row + BLOCK_M + kv_len - seq_len), 0)
        unmasked = tl.maximum(tl.minimum(kv_len, first_row + 1 + kv_len - seq_len), 0)
    unmasked = unmasked // BLOCK_N * BLOCK_N
    q_tile = load_rows(q, first_row, seq_len, q_row, BLOCK_M, HEAD_DIM, PARTS, True, EMULATE_BF16)
    acc = zeros(BLOCK_M, PARTS)
    highest = tl.full((BLOCK_M,), LOWEST, tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    acc, highest, total = walk_keys(
        acc, highest, total, q_tile, k, v, first_row, 0, unmasked, seq_len, kv_len, k_row, v_row, scale_log2,
        BLOCK_M, BLOCK_N, HEAD_DIM, PARTS, CAUSAL, False, PRECISION, EMULATE_BF16, DESCRIPTORS,
    )  # fmt: skip
    acc, highest, total = walk_keys(
        acc, highest, total, q_tile, k, v, first_row, unmasked, last_key, seq_len, kv_len, k_row, v_row,
        scale_log2, BLOCK_M, BLOCK_N, HEAD_DIM, PARTS, CAUSAL, True, PRECISION, EMULATE_BF16, DESCRIPTORS,
    )  # fmt: skip
    # A query that sees no key: total 0, acc 0, so 0 out of it; its log-sum is 0 so that backward stays finite.
    keyless = total == 0.0
    total = tl.where(keyless, 1.0, total)
    acc = scale_rows(acc, 1.0 / total)
    store_rows(out, acc, first_row, seq_len, out_row, BLOCK_M, HEAD_DIM, PARTS, EMULATE_BF16)
    rows = first_row + tl.arange(0, BLOCK_M)
    # In units of log2, of scaled scores: what backward needs to make the weights again.
    tl.store(log_sum + rows, tl.where(keyless, 0.0, highest + tl.log2(total)), mask=rows < seq_len)


# Lengths are not specialised on, so that one binary serves all of them.
@triton.jit(do_not_specialize=["seq_len", "kv_len"])
def attention_forward(
    q, k, v, out, log_sum,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row,
    seq_len, kv_len, scale_log2,
    GROUP: tl.constexpr, HEAD_DIM: tl.constexpr, PARTS: tl.constexpr, CAUSAL: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr,
    ALIGNMENT: tl.constexpr, BLOCK_PER_HEAD: tl.constexpr, EMULATE_BF16: tl.constexpr, DESCRIPTORS: tl.constexpr,
):  # fmt: skip
    """out = softmax(scale Q K^T) V, and log_sum (batch, n_head, seq_len) in float32.

    q and out (batch, n_head, seq_len, HEAD_DIM), k and v (batch, n_head / GROUP, kv_len, HEAD_DIM), by strides
    in elements (`q_batch`, `q_head`, `q_row`, ...). ALIGNMENT divides the batch and head strides.
    Grid (query tiles, n_head, batch); BLOCK_PER_HEAD: (1, n_head, batch), each block walking over all tiles.
    """
    head = tl.program_id(1)
    batch = tl.program_id(2)
    kv_head = head // GROUP
    log_sum += head_offset(batch, tl.num_programs(1), head, 1, 1) * seq_len
    q += head_offset(batch, q_batch, head, q_head, ALIGNMENT)
    k += head_offset(batch, k_batch, kv_head, k_head, ALIGNMENT)
    v += head_offset(batch, v_batch, kv_head, v_head, ALIGNMENT)
    out += head_offset(batch, out_batch, head, out_head, ALIGNMENT)
    k = describe_rows(k, kv_len, k_row, BLOCK_N, HEAD_DIM, PARTS, DESCRIPTORS)
    v = describe_rows(v, kv_len, v_row, BLOCK_N, HEAD_DIM, PARTS, DESCRIPTORS)
    if BLOCK_PER_HEAD:
        for tile in range(tl.cdiv(seq_len, BLOCK_M)):
            attend_tile(q, k, v, out, log_sum, tile, seq_len, kv_len, q_row, k_row, v_row, out_row, scale_log2,
                        HEAD_DIM, PARTS, CAUSAL, BLOCK_M, BLOCK_N, PRECISION, EMULATE_BF16, DESCRIPTORS)  # fmt: skip
    else:
        tile = tl.program_id(0)
        if CAUSAL:  # the longest first: the last to start should be short
            tile = tl.num_programs(0) - 1 - tile
        attend_tile(q, k, v, out, log_sum, tile, seq_len, kv_len, q_row, k_row, v_row, out_row, scale_log2,
                    HEAD_DIM, PARTS, CAUSAL, BLOCK_M, BLOCK_N, PRECISION, EMULATE_BF16, DESCRIPTORS)  # fmt: skip
