"""Which splits a request means, what tensor parallelism leaves of them, and what is refused."""

import re

import pytest

from andrea_bench.axes import AxisRequest
from andrea_bench.errors import BadInput
from andrea_bench.explore.choice import choice
from andrea_bench.explore.splits import candidates, coarse_first, of_one_gpu, split_label
from andrea_bench.problem import Problem


def request(**fields: object) -> AxisRequest:
    return AxisRequest(**fields)  # type: ignore[arg-type]


def test_a_width_gives_every_divisor_once_and_the_models_own_split() -> None:
    found = candidates(request(iso={"d_model": 768}))
    assert len(found.problems) == 18  # 768 = 2^8 * 3
    assert all(p.n_head * p.head_dim == 768 and p.n_kv_head == p.n_head for p in found.problems)
    assert found.own == "12 x 64"
    assert candidates(request(iso={"d_model": 1536})).own == "24 x 64"


def test_kv_heads_that_do_not_divide_are_left_out_with_the_reason() -> None:
    found = candidates(request(iso={"d_model": 768}, axes={"n_kv_head": [4]}))
    assert "6:4 x 128" not in map(split_label, found.problems)
    assert any("n_head 6 is not a multiple of n_kv_head 4" in reason for _, reason in found.left_out)


def test_every_kv_head_count_of_a_width_is_asked_for_or_comes_with_it() -> None:
    asked = candidates(request(iso={"d_model": 768}, axes={"n_kv_head": [1, 4, 12]}, where=["n_head == 12"]))
    assert list(map(split_label, asked.problems)) == ["12:1 x 64", "12:4 x 64", "12 x 64"] and asked.own == "12 x 64"
    every = candidates(request(iso={"d_model": 768}, where=["n_head == 12"]), every_kv=True)
    assert [p.n_kv_head for p in every.problems] == [1, 2, 3, 4, 6, 12] and every.own == "12 x 64"
    given = candidates(request(iso={"d_model": 768}, axes={"n_kv_head": [4]}), every_kv=True)
    assert {p.n_kv_head for p in given.problems} == {4}


def test_head_dim_need_not_be_the_quotient() -> None:
    found = candidates(request(axes={"d_model": [768], "n_head": [12], "head_dim": [64, 72]}))
    assert [(p.n_head, p.head_dim, p.d_model) for p in found.problems] == [(12, 64, 768), (12, 72, 768)]
    joined = candidates(request(iso={"d_model": 768}), own="10x72")
    assert joined.own == "10 x 72" and joined.problems[-1].d_model == 768


@pytest.mark.parametrize("model", ["llama-3-8b", "gpt-2-small", "qwen3-4b"])
def test_a_models_other_splits_have_its_parameter_count(model: str) -> None:
    found = candidates(request(model=model))
    counts = {p.attention_parameters() for p in found.problems}
    assert len(found.problems) > 5 and len(counts) == 1
    assert all(p.head_dim % 8 == 0 and p.n_head % p.n_kv_head == 0 for p in found.problems)


def test_tensor_parallelism_divides_heads_and_keeps_the_input_whole() -> None:
    whole = Problem(d_model=4096, n_head=32, n_kv_head=8, head_dim=128)
    half = of_one_gpu(whole, 4)
    assert (half.d_model, half.n_head, half.n_kv_head, half.head_dim) == (4096, 8, 2, 128)
    assert 4 * half.attention_parameters() == whole.attention_parameters()
    # Fewer KV heads than GPUs: each is held by two.
    assert of_one_gpu(whole, 16).n_kv_head == 1
    assert choice(whole, 16).kv_cache_bytes_per_token == whole.kv_cache_bytes_per_token() // 8


@pytest.mark.parametrize(
    ("problem", "share", "message"),
    [
        (Problem(d_model=4544, n_head=71, n_kv_head=1), 4, "n_head 71 is not divisible by --tp 4"),
        (Problem(d_model=768, n_head=12, n_kv_head=3), 2, "n_kv_head 3 neither divides nor"),
    ],
)
def test_heads_that_do_not_divide_are_refused(problem: Problem, share: int, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        of_one_gpu(problem, share)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (request(iso={"d_model": 768}, where=["head_dim >= 8", "n_head > 1000"]), "'n_head > 1000' leaves none"),
        (request(iso={"d_model": 768}, axes={"n_kv_head": [7]}), "no legal split: .*not a multiple of n_kv_head 7"),
        (request(iso={"d_model": 768}, axes={"seq_len": [512, 1024]}), "seq_len has 2 values"),
        (request(iso={"d_model": 768}, axes={"batch": [2**40]}), "batch x seq_len: .* is larger"),
        (request(iso={"d_model": 10**18}), "d_model=1000000000000000000: must lie in 1 to"),
        (request(iso={"d_model": 2**40}), "columns of W_Q, W_K and W_V"),
        (request(model="nope"), "unknown model"),
    ],
)
def test_no_split_is_left_says_which_constraint(asked: AxisRequest, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        candidates(asked)


@pytest.mark.parametrize("text", ["12", "12x", "ax64", "12:x64", "12x64x2"])
def test_own_that_is_no_split_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match=re.escape(f"--own {text}")):
        candidates(request(iso={"d_model": 768}), own=text)


def test_a_short_search_sees_coarse_head_dims_first() -> None:
    order = [p.head_dim for p in coarse_first(candidates(request(iso={"d_model": 768})).problems)]
    assert order == [256, 192, 128, 64, 96, 32, 48, 16, 24, 768, 384, 8, 12, 6, 4, 3, 2, 1]
