"""Problem: the sizes of one attention layer, what is run on it, and how much work that is.

FLOPs and bytes belong to the Problem, by the one convention below; no kernel counts its own.
A multiply and an add count 2. All counts are Python integers, so they can't overflow.
"""

from typing import Any, Literal, get_args

import msgspec

from andrea_bench.errors import BadInput, unknown_name

Op = Literal["qkv_projection", "attention", "output_projection", "layout", "layer"]
Part = Literal["qk", "attention", "copy"]
Dtype = Literal["float32", "tf32", "bfloat16", "float16"]
Direction = Literal["forward", "backward", "forward_backward", "decode"]

OPS: tuple[Op, ...] = get_args(Op)
DTYPES: tuple[Dtype, ...] = get_args(Dtype)
DIRECTIONS: tuple[Direction, ...] = get_args(Direction)
ELEMENT_BYTES: dict[str, int] = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}
SIZES = ("batch", "seq_len", "kv_len", "d_model", "n_head", "n_kv_head", "head_dim", "n_layer")
# Larger than any machine; keeps absurd sizes from reaching an allocator.
MAX_SIZE = 2**40


class Problem(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """One attention layer and what is run on it.

    batch, seq_len: queries are (batch, seq_len). kv_len: keys per sequence, by default seq_len.
    d_model: width of the layer. n_head query heads and n_kv_head key-value heads (GQA; 1 is MQA), each
    head_dim wide; head_dim need not be d_model / n_head. n_layer never multiplies a count here.
    causal is aligned bottom-right: the last query sees every key.

    What is left out of d_model, head_dim and n_head is derived from the other two; raises BadInput,
    naming the field, the value and the nearest legal values.
    """

    batch: int = 1
    seq_len: int = 1024
    kv_len: int = None  # type: ignore[assignment]  # derived: seq_len
    d_model: int = None  # type: ignore[assignment]  # derived: n_head * head_dim
    n_head: int = None  # type: ignore[assignment]  # derived: d_model / head_dim
    n_kv_head: int = None  # type: ignore[assignment]  # derived: n_head
    head_dim: int = None  # type: ignore[assignment]  # derived: d_model / n_head
    n_layer: int = 1
    dtype: Dtype = "float32"
    causal: bool = True
    direction: Direction = "forward"

    def __post_init__(self) -> None:
        _check_names(self)
        for field in SIZES:
            value = getattr(self, field)
            if value is not None:
                _check_size(field, value)
        derived = _derive_widths(self.d_model, self.n_head, self.head_dim)
        derived["kv_len"] = self.seq_len if self.kv_len is None else self.kv_len
        derived["n_kv_head"] = derived["n_head"] if self.n_kv_head is None else self.n_kv_head
        for field, value in derived.items():
            msgspec.structs.force_setattr(self, field, value)
        if self.n_head % self.n_kv_head:
            raise BadInput(
                f"n_head {self.n_head} is not a multiple of n_kv_head {self.n_kv_head}; "
                f"nearest n_kv_head: {_list(nearest_divisors(self.n_head, self.n_kv_head))}"
            )

    # ---- work -------------------------------------------------------------------------------------
    def twice_kept_pairs(self) -> int:
        """Twice the (query, key) pairs of one head that count: all, or the ones that the causal mask keeps.
        Where seq_len equals kv_len the field's convention counts half of all, which need not be whole."""
        queries, keys = self.seq_len, self.kv_len
        if not self.causal:
            return 2 * queries * keys
        if queries == keys:
            return queries * keys
        if keys > queries:
            return 2 * (queries * keys - queries * (queries - 1) // 2)
        return keys * (keys + 1)

    def flops(self, op: Op = "layer", part: Part | None = None) -> int:
        """Floating-point operations of one call of `op`, in this Problem's direction, for one layer.

        `part` says what of the op `layout` is run: `qk` (its default; Q K^T alone, never masked),
        `attention`, or `copy` (0). Backward is 2.5 times forward for attention (it multiplies five
        matrices where forward multiplies two) and 2 times for projections.
        """
        if op == "layer":
            return sum(self.flops(one) for one in ("qkv_projection", "attention", "output_projection"))
        if part == "copy":
            return 0
        width = self.n_head * self.head_dim
        tokens = self.batch * self.seq_len
        if op == "qkv_projection":
            forward, backward_halves = (
                2 * tokens * self.d_model * (self.n_head + 2 * self.n_kv_head) * self.head_dim,
                4,
            )
        elif op == "output_projection":
            forward, backward_halves = 2 * tokens * width * self.d_model, 4
        elif op == "attention" or (op == "layout" and part == "attention"):
            forward, backward_halves = 2 * self.batch * width * self.twice_kept_pairs(), 5
        elif op == "layout":
            forward, backward_halves = 2 * self.batch * width * self.seq_len * self.kv_len, 4
        else:
            raise unknown_name("op", op, OPS)
        backward = forward * backward_halves // 2
        return {"backward": backward, "forward_backward": forward + backward}.get(self.direction, forward)

    def min_bytes(self, op: Op = "layer", part: Part | None = None) -> int:
        """Bytes that one call of `op` must move: each input read once, each output written once.

        Backward reads the inputs, (for attention) the output, and the output's gradient, and writes the
        inputs' gradients. `layer` is X and the two weights in, the layer's output out.
        """
        queries = self.batch * self.seq_len * self.n_head * self.head_dim
        keys = self.batch * self.kv_len * self.n_kv_head * self.head_dim
        tokens = self.batch * self.seq_len * self.d_model
        w_qkv = self.d_model * (self.n_head + 2 * self.n_kv_head) * self.head_dim
        w_o = self.n_head * self.head_dim * self.d_model
        packed = self.batch * self.seq_len * (self.n_head + 2 * self.n_kv_head) * self.head_dim
        inputs, outputs, saved = {
            ("qkv_projection", None): (tokens + w_qkv, packed, 0),
            ("qkv_projection", "copy"): (packed, packed, 0),
            ("attention", None): (queries + 2 * keys, queries, queries),
            ("output_projection", None): (queries + w_o, tokens, 0),
            ("output_projection", "copy"): (queries, queries, 0),
            ("layer", None): (tokens + w_qkv + w_o, tokens, 0),
            ("layout", None): (queries + keys, self.batch * self.n_head * self.seq_len * self.kv_len, 0),
            ("layout", "qk"): (queries + keys, self.batch * self.n_head * self.seq_len * self.kv_len, 0),
            ("layout", "attention"): (queries + 2 * keys, queries, queries),
            ("layout", "copy"): (queries + 2 * keys, queries + 2 * keys, 0),
        }[op, part]
        forward = inputs + outputs
        backward = inputs + saved + outputs + inputs
        elements = {"backward": backward, "forward_backward": forward + backward}.get(self.direction, forward)
        return elements * ELEMENT_BYTES[self.dtype]

    def attention_parameters(self) -> int:
        """Weights of W_Q, W_K, W_V and W_O of one layer (no biases)."""
        return self.d_model * self.head_dim * 2 * (self.n_head + self.n_kv_head)

    def kv_cache_bytes_per_token(self) -> int:
        """Bytes that one token adds to the KV cache, over all layers."""
        return 2 * self.n_kv_head * self.head_dim * self.n_layer * ELEMENT_BYTES[self.dtype]

    def label(self) -> str:
        """A short text that tells Problems of one sweep apart, as in
        `b1 s1024 d768 12x64 float32 causal forward`."""
        keys = "" if self.kv_len == self.seq_len else f"/{self.kv_len}"
        groups = "" if self.n_kv_head == self.n_head else f":{self.n_kv_head}"
        causal = "causal" if self.causal else "full"
        return (
            f"b{self.batch} s{self.seq_len}{keys} d{self.d_model} {self.n_head}{groups}x{self.head_dim} "
            f"{self.dtype} {causal} {self.direction}"
        )

    def alignment(self) -> str:
        """How head_dim lies to the 16 steps of tensor cores and to 16-byte rows, in words."""
        row = self.head_dim * ELEMENT_BYTES[self.dtype]
        if row % 16 == 0:
            step = next(s for s in (64, 32, 16, 8, 4) if self.head_dim % s == 0)
            return f"aligned to {step}"
        return (
            f"misaligned: head_dim {self.head_dim} % 8 = {self.head_dim % 8}, "
            f"rows of {row} bytes are no multiple of 16 bytes"
        )

    def replace(self, **changes: Any) -> "Problem":
        """This Problem with some fields changed; nothing else is derived anew."""
        return msgspec.structs.replace(self, **changes)


def nearest_divisors(width: int, value: int) -> list[int]:
    """The divisors of `width` nearest to `value`: the greatest below or at it, and the least above."""
    divisors = sorted({d for i in range(1, int(width**0.5) + 1) if width % i == 0 for d in (i, width // i)})
    below = [d for d in divisors if d <= value][-1:]
    return below + [d for d in divisors if d > value][:1]


def _derive_widths(d_model: int | None, n_head: int | None, head_dim: int | None) -> dict[str, int]:
    """d_model, n_head and head_dim, the missing one from the other two."""
    if n_head is None and head_dim is None:
        raise BadInput("a Problem needs n_head or head_dim beside d_model")
    if d_model is None:
        if n_head is None or head_dim is None:
            raise BadInput("a Problem needs two of d_model, n_head and head_dim")
        return {"d_model": n_head * head_dim, "n_head": n_head, "head_dim": head_dim}
    if head_dim is None:
        assert n_head is not None
        return {"d_model": d_model, "n_head": n_head, "head_dim": _quotient(d_model, "n_head", n_head)}
    if n_head is None:
        return {"d_model": d_model, "n_head": _quotient(d_model, "head_dim", head_dim), "head_dim": head_dim}
    return {"d_model": d_model, "n_head": n_head, "head_dim": head_dim}


def _quotient(d_model: int, field: str, value: int) -> int:
    if d_model % value:
        raise BadInput(
            f"d_model {d_model} is not divisible by {field} {value}; "
            f"nearest {field}: {_list(nearest_divisors(d_model, value))}"
        )
    return d_model // value


def _check_names(problem: Problem) -> None:
    if problem.dtype not in DTYPES:
        if str(problem.dtype).startswith(("fp8", "float8")):
            raise BadInput(f"dtype {problem.dtype!r}: fp8 is not measured by this project; known: {_list(DTYPES)}")
        raise unknown_name("dtype", str(problem.dtype), DTYPES)
    if problem.direction not in DIRECTIONS:
        raise unknown_name("direction", str(problem.direction), DIRECTIONS)
    if not isinstance(problem.causal, bool):
        raise BadInput(f"causal must be true or false, not {problem.causal!r}")


def _check_size(field: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadInput(f"{field} must be an integer, not {value!r}")
    if value < 1:
        raise BadInput(f"{field} {value} is not positive; nearest legal value: 1")
    if value > MAX_SIZE:
        raise BadInput(f"{field} {value} is larger than {MAX_SIZE}")


def _list(values: object) -> str:
    return ", ".join(str(value) for value in values)  # type: ignore[attr-defined]
