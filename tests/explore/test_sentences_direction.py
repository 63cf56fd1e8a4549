"""A comparison names what speaks for its outcome, not what speaks against it."""

import json

import pytest

from andrea_bench.cli.main import main


def test_a_faster_split_is_not_explained_by_what_would_slow_it(capsys: pytest.CaptureFixture[str]) -> None:
    """4 heads of 64 leave most of 128 SMs idle, 8 of 32 half as many: that is why they are faster, though they have
    twice the scores to exponentiate."""
    assert main(["explore", "--gpu", "rtx_4090", "--iso", "d_model=256", "--own", "4x64", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    said = [one for setting in document["settings"] for one in setting["sentences"] if one.get("split") == "8 x 32"]
    (faster,) = [one for one in said if (one.get("attention") or {}).get("high", 2) < 1]
    assert "SMs busy" in faster["text"] and "scores" not in faster["text"]
    assert faster["numbers"]["tail_efficiency"] > faster["numbers"]["tail_efficiency_against"] + 0.1
