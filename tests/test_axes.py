"""Axes: their syntax, what follows from what was given, filters and configuration files."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from andrea_bench.axes import AxisRequest, expand, parse_axis, read_config
from andrea_bench.errors import BadInput
from andrea_bench.problem import Problem
from andrea_bench.where import Where


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("n_head=8,12", "n_head", [8, 12]),
        ("head_dim=64:128:8", "head_dim", [64, 72, 80, 88, 96, 104, 112, 120, 128]),
        ("head_dim=64:70:4", "head_dim", [64, 68]),
        ("batch=1:3", "batch", [1, 2, 3]),
        ("seq_len=pow2:8:12", "seq_len", [256, 512, 1024, 2048, 4096]),
        ("seq_len=1,pow2:0:2,4", "seq_len", [1, 2, 4]),
        ("causal=true,False", "causal", [True, False]),
        ("dtype=float32,bfloat16", "dtype", ["float32", "bfloat16"]),
        (" direction = forward , backward ", "direction", ["forward", "backward"]),
        ("threads=1,2", "threads", [1, 2]),
        ("n_head=8,8,12,8", "n_head", [8, 12]),
        ("n_kv_head=0", "n_kv_head", [0]),  # an illegal point of a grid, not of the syntax
    ],
)
def test_an_axis_is_read(text: str, name: str, values: list[Any]) -> None:
    assert parse_axis(text) == (name, values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("n_head", "NAME=VALUES"),
        ("n_heads=8", "n_head"),
        ("n_head=", "n_head"),
        ("n_head=8,,12", "empty"),
        ("n_head=8:", "no whole number"),
        ("n_head=12:8:1", "8:12:1"),
        ("n_head=8:12:0", "step 0"),
        ("n_head=8:12:-1", "step -1"),
        ("n_head=1:2:3:4", "start:stop:step"),
        ("seq_len=1:99999999999:1", "99,999,999,999 values"),
        ("seq_len=pow2:8", "pow2:8:12"),
        ("seq_len=pow2:12:8", "lower one first"),
        ("seq_len=pow2:0:9999", "0 to 62"),
        ("seq_len=1.5", "1.5"),
        ("seq_len=1_000", "1_000"),
        ("seq_len=" + "9" * 5000, "5000 digits"),
        ("dtype=bfloat", "bfloat16"),
        ("dtype=fp8", "fp8 is not measured"),
        ("direction=fwd", "forward"),
        ("causal=maybe", "maybe"),
        ("threads=0", "threads 0"),
    ],
)
def test_a_wrong_axis_is_one_clear_line(text: str, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_axis(text)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


@given(st.text(max_size=40))
def test_any_text_is_an_axis_or_a_clear_refusal(text: str) -> None:
    try:
        name, values = parse_axis(f"n_head={text}")
    except BadInput:
        return
    assert name == "n_head"
    assert values
    assert all(isinstance(value, int) for value in values)


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 50))
def test_ranges_include_both_ends_where_the_step_meets_them(start: int, length: int, step: int) -> None:
    _, values = parse_axis(f"seq_len={start}:{start + length}:{step}")
    assert values == [n for n in range(start, start + length + 1) if (n - start) % step == 0]


def widths(model: str | None = None, **axes: int) -> tuple[int, int, int, int]:
    (problem,) = expand(AxisRequest(model=model, axes={name: [value] for name, value in axes.items()})).problems
    return problem.d_model, problem.n_head, problem.head_dim, problem.n_kv_head


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({}, (768, 12, 64, 12)),
        ({"n_head": 8, "head_dim": 72}, (576, 8, 72, 8)),
        ({"n_head": 8}, (768, 8, 96, 8)),
        ({"head_dim": 72}, (768, 12, 72, 12)),
        ({"d_model": 1024}, (1024, 16, 64, 16)),
        ({"d_model": 1024, "n_head": 8}, (1024, 8, 128, 8)),
        ({"d_model": 1024, "head_dim": 128}, (1024, 8, 128, 8)),
        ({"d_model": 2560, "n_head": 32, "head_dim": 128}, (2560, 32, 128, 32)),
        ({"n_kv_head": 4}, (768, 12, 64, 4)),
        ({"d_model": 3200, "n_head": 32}, (3200, 32, 100, 32)),
    ],
)
def test_what_follows_from_the_widths_that_were_given(axes: dict[str, int], expected: tuple[int, ...]) -> None:
    assert widths(**axes) == expected


def test_a_models_kv_heads_stay_where_they_can() -> None:
    assert widths("llama-3-8b") == (4096, 32, 128, 8)
    assert widths("llama-3-8b", n_head=16) == (4096, 16, 256, 8)
    assert widths("falcon-7b", n_head=64) == (4544, 64, 71, 1)


def test_what_is_not_given_is_the_models_and_the_devices() -> None:
    (on_cpu,) = expand(AxisRequest()).problems
    assert on_cpu == Problem(
        batch=1, seq_len=1024, d_model=768, n_head=12, n_layer=12, dtype="float32", causal=True, direction="forward"
    )
    (on_cuda,) = expand(AxisRequest(model="gpt-2-xl"), device="cuda:1").problems
    assert (on_cuda.dtype, on_cuda.d_model, on_cuda.n_head, on_cuda.n_layer) == ("bfloat16", 1600, 25, 48)


def test_a_suites_defaults_lie_below_the_users_and_above_the_models() -> None:
    defaults = {"seq_len": [1], "kv_len": [1024, 4096], "direction": ["decode"]}
    problems = expand(AxisRequest(axes={"kv_len": [64]}), defaults=defaults).problems
    assert [(p.seq_len, p.kv_len, p.direction) for p in problems] == [(1, 64, "decode")]


def test_the_product_runs_the_first_axis_slowest() -> None:
    problems = expand(AxisRequest(axes={"n_head": [8, 12], "seq_len": [1, 2]})).problems
    assert [(p.n_head, p.seq_len) for p in problems] == [(8, 1), (8, 2), (12, 1), (12, 2)]


def test_iso_makes_every_split_of_a_width() -> None:
    problems = expand(AxisRequest(iso={"d_model": 768})).problems
    assert [(p.n_head, p.head_dim) for p in problems] == [(n, 768 // n) for n in range(1, 769) if 768 % n == 0]
    with pytest.raises(BadInput, match="n_head"):
        expand(AxisRequest(iso={"d_model": 768}, axes={"n_head": [8]}))
    with pytest.raises(BadInput, match="iso"):
        expand(AxisRequest(iso={"d_model": 10**18}))


@pytest.mark.parametrize("n_kv_head", [2, 0, 64])
def test_an_illegal_single_problem_is_refused_with_both_numbers(n_kv_head: int) -> None:
    with pytest.raises(BadInput, match=str(n_kv_head)):
        expand(AxisRequest(axes={"n_head": [33], "head_dim": [64], "n_kv_head": [n_kv_head]}))


def test_in_a_grid_the_legal_points_run_and_the_others_are_listed() -> None:
    expansion = expand(AxisRequest(axes={"n_head": [8, 10, 12], "n_kv_head": [4]}))
    assert [p.n_head for p in expansion.problems] == [8, 12]
    ((axes, reason),) = expansion.invalid
    assert axes == {"n_head": 10, "n_kv_head": 4}
    assert "d_model 768 is not divisible by n_head 10; nearest n_head: 8, 12" in reason


def test_where_all_are_illegal_the_first_reasons_are_told() -> None:
    with pytest.raises(BadInput, match=r"n_head 7;.*n_head 9;.*n_head 10;.*1 more"):
        expand(AxisRequest(axes={"n_head": [7, 9, 10, 11]}))


def test_a_filter_leaves_out_illegal_points_that_it_names() -> None:
    request = AxisRequest(axes={"n_head": list(range(1, 13))}, where=["d_model % n_head == 0"])
    expansion = expand(request)
    assert [p.n_head for p in expansion.problems] == [1, 2, 3, 4, 6, 8, 12]
    assert expansion.invalid == []


def test_more_than_a_million_points_are_refused_before_they_are_made() -> None:
    axes = {"seq_len": list(range(1, 1002)), "batch": list(range(1, 1001))}
    with pytest.raises(BadInput, match="1,001,000 points"):
        expand(AxisRequest(axes=axes))


def test_unknown_and_empty_axes_are_refused() -> None:
    with pytest.raises(BadInput, match="head_dim"):
        expand(AxisRequest(axes={"head_dims": [1]}))
    with pytest.raises(BadInput, match="n_head"):
        expand(AxisRequest(axes={"n_head": []}))


PROBLEM = Problem(n_head=12, n_kv_head=4, head_dim=64, seq_len=100, dtype="bfloat16")


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("n_head * head_dim <= 768", True),
        ("n_head * head_dim < 768", False),
        ("8 <= n_head <= 16 and not n_head == 10", True),
        ("(seq_len + 28) % 128 == 0", True),
        ("seq_len // 3 == 33 or 1 > 2", True),
        ("seq_len / 8 == 12.5", True),
        ("-n_head < -11", True),
        ("dtype == 'bfloat16' and direction != 'decode'", True),
        ("causal", True),
        ("causal == false", False),
        ("  n_head == 12  ", True),
    ],
)
def test_a_condition_is_evaluated(text: str, holds: bool) -> None:
    assert Where(text)(PROBLEM) is holds


@pytest.mark.parametrize(
    ("text", "position", "words"),
    [
        ("n_haed == 8", 1, "n_head"),
        ("seq_len > 1 and n_head == 8 or 12", 32, "not a condition"),
        ("n_head", 1, "not a condition"),
        ("dtype < 3", 1, "text with a number"),
        ("dtype < 'float32'", 1, "no order"),
        ("1 == 9**9**9", 6, "not known"),
        ("dtype == 'a' * 1000000000", 10, "not a number"),
        ("__import__('os').system('true')", 1, "not known"),
        ("n_head.real == 1", 1, "not known"),
        ("[n_head for n_head in 1] == 1", 1, "not known"),
        ("n_head in (1, 2)", 11, "not known"),
        ("(lambda: 1)() == 1", 1, "not known"),
        ("n_head ==", 10, "can't be read"),
        ("n_head == 1 #\n; import os", 13, "can't be read"),
    ],
)
def test_a_wrong_condition_names_expression_and_position(text: str, position: int, words: str) -> None:
    with pytest.raises(BadInput) as caught:
        Where(text)
    message = str(caught.value)
    assert repr(text) in message
    assert words in message
    if "can't be read" not in words:
        assert f"position {position}:" in message
    assert "\n" not in message


def test_conditions_are_bounded_and_division_by_zero_is_told() -> None:
    for text in ("1+" * 300 + "1 == 1", "not " * 100 + "causal", "(" * 250 + "causal" + ")" * 250, "n_head == \0"):
        with pytest.raises(BadInput):
            Where(text)
    with pytest.raises(BadInput, match=r"seq_len % \(n_head - 12\) == 0.*zero.*n_head=12"):
        Where("seq_len % (n_head - 12) == 0")(PROBLEM)
    with pytest.raises(BadInput, match="no point"):
        expand(AxisRequest(where=["n_head == 5"]))


@given(st.integers(-20, 20), st.integers(1, 20), st.integers(-20, 20), st.sampled_from(["+", "-", "*", "//", "%"]))
def test_arithmetic_is_pythons(left: int, right: int, other: int, symbol: str) -> None:
    expected = {"+": left + right, "-": left - right, "*": left * right, "//": left // right, "%": left % right}[symbol]
    assert Where(f"({left}) {symbol} {right} <= {other}")(PROBLEM) is (expected <= other)


TOML = b"""model = "gpt-2-xl"
where = "n_head <= 32"
suites = ["attention"]
device = "cpu"
iso = {d_model = 768}

[axes]
head_dim = "64:80:8"
n_head = [8, 12]
causal = [true, false]
threads = 1
dtype = "float32,bfloat16"
"""


@pytest.mark.parametrize("content", [TOML, b"\xef\xbb\xbf" + TOML.replace(b"\n", b"\r\n")])
def test_a_configuration_file_is_read_with_byte_order_mark_and_crlf(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "β x.toml"
    file.write_bytes(content)
    assert read_config(file) == {
        "model": "gpt-2-xl",
        "where": ["n_head <= 32"],
        "suites": ["attention"],
        "device": "cpu",
        "iso": {"d_model": 768},
        "axes": {
            "head_dim": [64, 72, 80],
            "n_head": [8, 12],
            "causal": [True, False],
            "threads": [1],
            "dtype": ["float32", "bfloat16"],
        },
    }


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"modle = 'x'", "model"),
        (b"[axes]\nn_heads = 8", "n_head"),
        (b"axes = 3", "table"),
        (b"model = 3", "text"),
        (b"where = [1]", "texts"),
        (b"iso = {d_model = 'x'}", "one width"),
        (b"iso = {n_head = 3}", "one width"),
        (b"[axes]\nn_head = 8.5", "8.5"),
        (b"[axes]\nn_head = []", "n_head"),
        (b"a = \nb = 1", "line 1"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_a_wrong_configuration_file_is_one_line_with_its_name(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "sweep.toml"
    file.write_bytes(content)
    with pytest.raises(BadInput) as caught:
        read_config(file)
    assert str(file) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.toml"):
        with pytest.raises(BadInput, match="can't be read"):
            read_config(path)


@given(st.integers(1, 4000))
def test_every_split_of_a_width_multiplies_back(width: int) -> None:
    problems = expand(AxisRequest(iso={"d_model": width})).problems
    assert all(p.n_head * p.head_dim == p.d_model == width for p in problems)
    assert len(problems) == sum(width % n == 0 for n in range(1, width + 1))
