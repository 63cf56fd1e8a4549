"""Problem: validation, and FLOPs, bytes and parameters against counts made by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_bench.errors import BadInput
from andrea_bench.problem import DIRECTIONS, DTYPES, Problem, nearest_divisors

# batch 2, seq_len 8, d_model 24, 4 query heads over 2 KV heads, head_dim 16 (so heads are 64 wide, not 24).
GQA = Problem(batch=2, seq_len=8, d_model=24, n_head=4, n_kv_head=2, head_dim=16, causal=False, n_layer=7)


@pytest.mark.parametrize(
    ("op", "part", "forward", "backward"),
    [
        ("qkv_projection", None, 2 * 2 * 8 * 24 * (4 + 2 * 2) * 16, 2.0),
        ("attention", None, 4 * 2 * 4 * 8 * 8 * 16, 2.5),
        ("output_projection", None, 2 * 2 * 8 * 64 * 24, 2.0),
        ("layout", "qk", 2 * 2 * 4 * 8 * 8 * 16, 2.0),
        ("layout", None, 2 * 2 * 4 * 8 * 8 * 16, 2.0),
        ("layout", "attention", 4 * 2 * 4 * 8 * 8 * 16, 2.5),
        ("layout", "copy", 0, 2.0),
        ("qkv_projection", "copy", 0, 2.0),
        ("output_projection", "copy", 0, 2.0),
    ],
)
def test_flops_of_each_op_and_direction(op: str, part: str | None, forward: int, backward: float) -> None:
    def flops(direction: str) -> int:
        return GQA.replace(direction=direction).flops(op, part)  # type: ignore[arg-type]

    assert flops("forward") == flops("decode") == forward
    assert flops("backward") == forward * backward
    assert flops("forward_backward") == forward * (1 + backward)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_layer_is_the_sum_of_its_ops_and_n_layer_never_multiplies(direction: str) -> None:
    problem = GQA.replace(direction=direction)
    parts = [problem.flops(op) for op in ("qkv_projection", "attention", "output_projection")]
    assert problem.flops() == sum(parts)
    assert problem.replace(n_layer=1).flops() == problem.flops()


def test_attention_flops_of_a_known_case() -> None:
    full = Problem(batch=1, n_head=32, head_dim=128, seq_len=4096, causal=False)
    assert full.flops("attention") == 274_877_906_944
    assert full.replace(causal=True).flops("attention") == 274_877_906_944 // 2
    assert full.replace(n_kv_head=8).flops("attention") == 274_877_906_944  # query heads count


@given(st.integers(1, 12), st.integers(1, 12))
def test_causal_pairs_are_those_of_a_bottom_right_mask(queries: int, keys: int) -> None:
    problem = Problem(n_head=1, head_dim=1, seq_len=queries, kv_len=keys)
    kept = sum(key <= query + keys - queries for query in range(queries) for key in range(keys))
    if queries == keys:
        assert problem.flops("attention") == 2 * queries * keys  # half of all, the field's convention
    else:
        assert problem.flops("attention") == 4 * kept
    assert problem.replace(causal=False).flops("attention") == 4 * queries * keys


def test_decode_sees_every_key() -> None:
    problem = Problem(n_head=12, n_kv_head=2, head_dim=16, seq_len=1, kv_len=4096, direction="decode")
    assert problem.flops("attention") == 4 * 12 * 4096 * 16
    assert problem.min_bytes("attention") == 4 * (12 * 16 + 2 * 2 * 4096 * 16 + 12 * 16)


@pytest.mark.parametrize(
    ("op", "part", "inputs", "outputs", "saved"),
    [
        ("qkv_projection", None, 2 * 8 * 24 + 24 * 128, 2 * 8 * 128, 0),
        ("qkv_projection", "copy", 2 * 8 * 128, 2 * 8 * 128, 0),
        ("attention", None, 2 * 8 * 64 + 2 * 2 * 8 * 32, 2 * 8 * 64, 2 * 8 * 64),
        ("output_projection", None, 2 * 8 * 64 + 64 * 24, 2 * 8 * 24, 0),
        ("output_projection", "copy", 2 * 8 * 64, 2 * 8 * 64, 0),
        ("layer", None, 2 * 8 * 24 + 24 * 128 + 64 * 24, 2 * 8 * 24, 0),
        ("layout", "qk", 2 * 8 * 64 + 2 * 8 * 32, 2 * 4 * 8 * 8, 0),
        ("layout", None, 2 * 8 * 64 + 2 * 8 * 32, 2 * 4 * 8 * 8, 0),
        ("layout", "attention", 2 * 8 * 64 + 2 * 2 * 8 * 32, 2 * 8 * 64, 2 * 8 * 64),
        ("layout", "copy", 2 * 8 * 128, 2 * 8 * 128, 0),
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bytes_of_each_op_and_direction(
    op: str, part: str | None, inputs: int, outputs: int, saved: int, dtype: str
) -> None:
    width = {"float32": 4, "tf32": 4, "bfloat16": 2, "float16": 2}[dtype]

    def moved(direction: str) -> int:
        return GQA.replace(dtype=dtype, direction=direction).min_bytes(op, part)  # type: ignore[arg-type]

    assert moved("forward") == moved("decode") == (inputs + outputs) * width
    assert moved("backward") == (2 * inputs + saved + outputs) * width
    assert moved("forward_backward") == moved("forward") + moved("backward")


def test_counts_are_exact_where_64_bits_end() -> None:
    problem = Problem(batch=2**30, seq_len=2**20, n_head=2**10, head_dim=2**10, causal=False)
    assert problem.flops("attention") == 4 * 2**30 * 2**10 * 2**40 * 2**10


def test_parameters_and_kv_cache_of_grouped_heads() -> None:
    assert GQA.attention_parameters() == 24 * 64 + 2 * 24 * 32 + 64 * 24
    assert GQA.kv_cache_bytes_per_token() == 7 * 2 * 2 * 16 * 4
    assert Problem(d_model=768, n_head=12).attention_parameters() == 2_359_296
    falcon = Problem(d_model=4544, n_head=71, n_kv_head=1)
    assert falcon.attention_parameters() - 4544**2 == 4672 * 4544 == 21_229_568


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ({"d_model": 768, "n_head": 10}, "d_model 768 is not divisible by n_head 10; nearest n_head: 8, 12"),
        ({"d_model": 1600, "n_head": 48}, "d_model 1600 is not divisible by n_head 48; nearest n_head: 40, 50"),
        ({"d_model": 768, "head_dim": 65}, "d_model 768 is not divisible by head_dim 65; nearest head_dim: 64, 96"),
        (
            {"n_head": 33, "head_dim": 64, "n_kv_head": 2},
            "n_head 33 is not a multiple of n_kv_head 2; nearest n_kv_head: 1, 3",
        ),
        (
            {"n_head": 3, "head_dim": 64, "n_kv_head": 2},
            "n_head 3 is not a multiple of n_kv_head 2; nearest n_kv_head: 1, 3",
        ),
        (
            {"n_head": 32, "head_dim": 64, "n_kv_head": 64},
            "n_head 32 is not a multiple of n_kv_head 64; nearest n_kv_head: 32",
        ),
        ({"n_head": 12, "head_dim": 64, "n_kv_head": 0}, "n_kv_head 0 is not positive; nearest legal value: 1"),
        ({"n_head": 12, "head_dim": 64, "batch": -1}, "batch -1 is not positive; nearest legal value: 1"),
        ({"n_head": 12, "head_dim": 64, "seq_len": 0}, "seq_len 0 is not positive; nearest legal value: 1"),
        ({"n_head": 12, "head_dim": 64, "batch": 2.0}, "batch must be an integer, not 2.0"),
        ({"n_head": 12, "head_dim": 64, "batch": True}, "batch must be an integer, not True"),
        ({"n_head": 12, "head_dim": 64, "causal": 1}, "causal must be true or false, not 1"),
        ({"n_head": 12, "head_dim": 64, "seq_len": 2**41}, f"seq_len {2**41} is larger than {2**40}"),
        ({"d_model": 768}, "needs n_head or head_dim"),
        ({"n_head": 12}, "needs two of"),
    ],
)
def test_what_is_illegal_is_named_with_the_nearest_legal_values(sizes: dict[str, int], message: str) -> None:
    with pytest.raises(BadInput) as caught:
        Problem(**sizes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("dtype", "bfloat", "bfloat16"),
        ("dtype", "fp8", "fp8 is not measured"),
        ("dtype", "float8_e4m3", "fp8 is not measured"),
        ("direction", "backwards", "backward"),
    ],
)
def test_unknown_names_come_with_the_closest_or_the_reason(field: str, value: str, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        Problem(n_head=1, head_dim=1, **{field: value})


@pytest.mark.parametrize(
    ("d_model", "n_head", "head_dim"),
    [(1600, 25, 64), (768, 12, 64), (1024, 16, 64), (1280, 20, 64), (3200, 32, 100), (520, 8, 65)],
)
def test_head_dim_is_the_quotient(d_model: int, n_head: int, head_dim: int) -> None:
    assert Problem(d_model=d_model, n_head=n_head).head_dim == head_dim


def test_misalignment_is_told_in_words() -> None:
    wide = Problem(d_model=3200, n_head=32, dtype="bfloat16").alignment()
    assert "100 % 8 = 4" in wide
    assert "200 bytes" in wide
    odd = Problem(d_model=520, n_head=8, dtype="float16").alignment()
    assert "65 % 8 = 1" in odd
    assert "130 bytes" in odd
    assert Problem(n_head=12, head_dim=64).alignment() == "aligned to 64"
    assert Problem(n_head=12, head_dim=72, dtype="bfloat16").alignment() == "aligned to 8"


def test_a_group_of_six_query_heads_is_legal() -> None:
    assert Problem(n_head=12, n_kv_head=2, head_dim=16, seq_len=1, kv_len=4096).n_kv_head == 2


@given(st.integers(1, 3000), st.integers(1, 3000))
def test_nearest_divisors_enclose_the_value(width: int, value: int) -> None:
    divisors = [d for d in range(1, width + 1) if width % d == 0]
    below, above = [d for d in divisors if d <= value], [d for d in divisors if d > value]
    assert nearest_divisors(width, value) == below[-1:] + above[:1]


def test_labels_tell_the_fields_apart() -> None:
    assert Problem(n_head=12, head_dim=64, n_kv_head=4, seq_len=1, kv_len=9, causal=False).label() == (
        "b1 s1/9 d768 12:4x64 float32 full forward"
    )
