"""The verb params: counts by part, differences, exit codes."""

import json
from pathlib import Path
from typing import Any

import pytest

from andrea_bench.cli.main import main

CONFIGS = Path(__file__).parents[1] / "fixtures" / "configs"


@pytest.fixture
def params(capfd: pytest.CaptureFixture[str]) -> Any:
    """Runs the verb; returns exit code, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        code = main(["params", *arguments])
        return code, *capfd.readouterr()

    return run


def test_the_default_is_andrea_120m_by_part(params: Any) -> None:
    code, out, _ = params("--json")
    (row,) = json.loads(out)["models"]
    assert code == 0
    assert row["model"] == "andrea-120m"
    parts = {name: row[name] for name in ("embeddings", "attention", "mlp", "norms", "output_head", "extras")}
    assert parts == {
        "embeddings": 8449 * 768 + 1024 * 768,
        "attention": 12 * 2_359_296,
        "mlp": 12 * 8 * 768**2,
        "norms": 0,
        "output_head": 8449 * 768,
        "extras": 0,
    }
    assert row["unique"] == row["stored"] == sum(parts.values()) == 98_698_752
    assert row["kv_cache_bytes_per_token"] == 2 * 768 * 12 * 4
    assert "intermediate_size" in row["assumed"]


def test_expect_prints_the_signed_difference_and_exits_1_only_where_it_differs(params: Any) -> None:
    code, out, _ = params("--model", "gpt-j-6b", "--expect", "6053381344", "--json")
    assert (code, json.loads(out)["models"][0]["difference"]) == (1, -2_498_560)
    code, out, _ = params("--model", "gpt-j-6b", "--expect", "6053381344")
    assert code == 1
    assert "difference -2,498,560" in out
    assert params("--model", "gpt-j-6b", "--expect", "6050882784")[0] == 0
    assert params("--model", "gpt-j-6b")[0] == 0


def test_a_configuration_is_read_as_it_is(params: Any) -> None:
    code, out, _ = params("--model", str(CONFIGS / "qwen3-4b.json"), "--json")
    assert code == 0
    assert json.loads(out)["models"][0]["unique"] == 4_022_468_096
    assert "3668570240" not in out


def test_the_kv_cache_is_counted_in_the_files_dtype_unless_another_is_asked_for(params: Any, tmp_path: Path) -> None:
    content = json.loads((CONFIGS / "gpt2.json").read_text()) | {"torch_dtype": "bfloat16"}
    file = tmp_path / "config.json"
    file.write_text(json.dumps(content))
    for asked, dtype, nbytes in (([], "bfloat16", 2), (["-a", "dtype=float32"], "float32", 4)):
        code, out, _ = params("--model", str(file), *asked, "--json")
        (row,) = json.loads(out)["models"]
        # K and V of 12 layers of 12 heads, 64 wide.
        assert (code, row["dtype"], row["kv_cache_bytes_per_token"]) == (0, dtype, 2 * 12 * 12 * 64 * nbytes)
        assert row["note"] is None
    file.write_text(json.dumps(content | {"torch_dtype": "float8_e4m3fn"}))
    assert "note: dtype float8_e4m3fn is none of float32, " in params("--model", str(file))[1]


def test_axes_make_several_models_and_the_illegal_ones_are_listed(params: Any) -> None:
    code, out, _ = params("-a", "n_head=8,10,12", "--json")
    document = json.loads(out)
    assert code == 0
    assert [row["n_head"] for row in document["models"]] == [8, 12]
    assert document["invalid"][0]["axes"] == {"n_head": 10}
    code, out, err = params("-a", "n_head=8,10,12")
    assert "n_head 10" in err
    assert all(len(line) <= 80 for line in out.splitlines())
    assert params("-a", "n_head=8,12", "--expect", "1")[0] == 2


def test_axes_that_are_no_size_of_a_model_make_no_further_one(params: Any) -> None:
    _, out, _ = params("-a", "seq_len=1,2,3", "-a", "causal=true,false", "--json")
    assert len(json.loads(out)["models"]) == 1


def test_bad_input_is_one_line_and_exit_2(params: Any) -> None:
    for arguments in (["--model", "gpt9"], ["-a", "d_model=1600", "-a", "n_head=48"], ["--expect", "x"]):
        code, out, err = params(*arguments)
        assert code == 2
        assert not out
        assert "Traceback" not in err


def test_what_cannot_be_counted_says_why(params: Any, tmp_path: Path) -> None:
    file = tmp_path / "config[red].json"
    sizes = {"model_type": "odd[/]", "hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 1}
    file.write_text(json.dumps(sizes))
    code, out, _ = params("--model", str(file))
    assert code == 0
    assert "not counted whole" in out
    assert "odd[/]" in out
    assert params("--model", str(file), "--expect", "3")[0] == 2


def test_a_tied_matrix_is_told_apart(params: Any) -> None:
    _, out, _ = params("--model", "stories15m", "--json")
    (row,) = json.loads(out)["models"]
    assert (row["unique"], row["stored"], row["tied"], row["output_head"]) == (15_191_712, 24_407_712, 9_216_000, 0)
    assert row["non_embedding"] == 15_191_712 - 9_216_000
    _, out, _ = params("--model", "stories15m")
    assert "tied output head (9,216,000)" in out


@pytest.mark.parametrize(
    ("d_model", "n_head", "dtype", "words"),
    [(3200, 32, "bfloat16", ["100 % 8 = 4", "200 bytes"]), (520, 8, "float16", ["65 % 8 = 1", "130 bytes"])],
)
def test_a_misaligned_head_dim_is_accepted_and_said(
    params: Any, d_model: int, n_head: int, dtype: str, words: list[str]
) -> None:
    code, out, _ = params("-a", f"d_model={d_model}", "-a", f"n_head={n_head}", "-a", f"dtype={dtype}", "--json")
    alignment = json.loads(out)["models"][0]["alignment"]
    assert code == 0
    assert alignment.startswith("misaligned")
    assert all(word in alignment for word in words)
