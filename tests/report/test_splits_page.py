"""Which split the heat map of n_head x head_dim frames: the one that the sweep was asked for, or none."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_up import Change, changed_run

from andrea_bench.report.content import Chart, Subject
from andrea_bench.report.pages.splits import splits
from andrea_bench.report.subject import read_runs

FRAME = "A frame marks the split that the sweep was asked for."


def values(layer: dict[str, Any]) -> list[dict[str, Any]]:
    """All values behind the marks of a chart."""
    inner = [value for one in layer.get("layer", []) for value in values(one)]
    return [*layer.get("data", {}).get("values", []), *inner]


def framed(folder: Path, *arguments: str, change: Change | None = None) -> tuple[set[str], set[str]]:
    """The splits on the maps of the stored Run, and those with a frame, had it been made by these arguments."""
    run = changed_run(folder, change, arguments=list(arguments))
    page = splits(Subject(read_runs([run], lambda head: None), None, "andrea-bench report"))
    every, marked = set(), set()
    for chart in (part for part in page.parts if isinstance(part, Chart)):
        rows = {f"{row[0]}x{row[1]}": row[6] == "chosen" for row in chart.data.rows}
        here = {split for split, mark in rows.items() if mark}
        drawn = values(chart.picture.to_dict(validate=False))
        assert {f"{value['y']}x{value['x']}" for value in drawn if value["chosen"]} == here
        assert (FRAME in chart.about) == bool(here)
        every, marked = every | set(rows), marked | here
    return every, marked


def asked(folder: Path, *arguments: str) -> set[str]:
    """The splits with a frame; the Run has 1x64, 2x32 and 4x16 of width 64, which no preset has."""
    every, marked = framed(folder, *arguments)
    assert {"1x64", "2x32", "4x16"} <= every
    return marked


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A config.json of a model of width 64 with 2 heads of 32."""
    file = tmp_path / "config.json"
    sizes = {"model_type": "gpt2", "n_embd": 64, "n_head": 2, "n_layer": 2, "n_positions": 64, "vocab_size": 100}
    file.write_text(json.dumps(sizes))
    return file


def test_the_named_model_is_framed(model: Path, tmp_path: Path) -> None:
    assert asked(tmp_path / "a", "sweep", "attention", "--model", str(model), "--iso", "d_model=64") == {"2x32"}
    assert asked(tmp_path / "b", "sweep", f"--model={model}", "-a", "n_head=1,2,4") == {"2x32"}
    # The last one counts, as on the command line.
    assert asked(tmp_path / "c", "sweep", "--model=andrea-120m", "--model", str(model)) == {"2x32"}
    assert asked(tmp_path / "d", "sweep", "--model", str(model), "--model=andrea-120m") == set()


def test_a_config_file_names_it_too(model: Path, tmp_path: Path) -> None:
    file = tmp_path / "sweep.toml"
    file.write_text(f"model = '{model}'\niso = {{d_model = 64}}\n")
    assert asked(tmp_path / "a", "sweep", "attention", "--config", str(file)) == {"2x32"}
    assert asked(tmp_path / "b", "sweep", f"--config={file}", "--model", "andrea-120m") == set()
    file.write_text("[axes]\nn_head = 4\nhead_dim = 16\n")
    assert asked(tmp_path / "c", "sweep", "--config", str(file)) == {"4x16"}
    # The command line beats the file, axis by axis.
    assert asked(tmp_path / "d", "sweep", "--config", str(file), "-a", "n_head=2", "--axis=head_dim=32") == {"2x32"}


@pytest.mark.parametrize("spelling", ["-a {}", "-a{}", "--axis {}", "--axis={}"])
def test_axes_that_name_one_split_are_framed(spelling: str, tmp_path: Path) -> None:
    given = [word for axis in ("n_head=1", "head_dim=64") for word in spelling.format(axis).split()]
    assert asked(tmp_path / "run", "sweep", *given, "-a", "seq_len=32,64") == {"1x64"}


def of_width_768(record: dict[str, Any]) -> None:
    """12 heads of 64, as the default model has, beside 6 of 128."""
    problem = record["problem"]
    for split, n_head, head_dim in (((2, 32), 12, 64), ((4, 16), 6, 128)):
        if (problem["n_head"], problem["head_dim"]) == split:
            problem |= {"d_model": 768, "n_head": n_head, "n_kv_head": n_head, "head_dim": head_dim}
            return


def test_where_no_model_is_named_it_is_the_default_one(tmp_path: Path) -> None:
    every, marked = framed(tmp_path / "run", "sweep", "attention", "--iso", "d_model=768", change=of_width_768)
    assert {"12x64", "6x128"} <= every and marked == {"12x64"}


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["sweep", "-a", "n_head=6,12"],
        ["sweep", "-a", "n_head=12", "-a", "head_dim=64,128"],
        ["sweep", "--config", "no-such-file.toml"],
        ["sweep", "--model", "no-such/config.json"],
        ["sweep", "--model", "no-such-preset"],
        ["sweep", "-a", "n_haed=12"],
        ["sweep", "-a", "n_head=5", "-a", "d_model=768"],
    ],
)
def test_what_cannot_be_known_is_not_framed(arguments: list[str], tmp_path: Path) -> None:
    every, marked = framed(tmp_path / "run", *arguments, change=of_width_768)
    assert {"12x64", "6x128"} <= every and marked == set()
