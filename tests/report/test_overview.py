"""The overview of a large Run, against medians by hand."""

from pathlib import Path

import pytest
from rich.console import Console
from test_rows import make

from andrea_bench import Problem
from andrea_bench.cli.main import main
from andrea_bench.record import RunHead
from andrea_bench.report import overview as module
from andrea_bench.store import RunWriter

pytest.importorskip("polars", reason="the overview is polars'")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sizes = [Problem(d_model=768, n_head=12, seq_len=length) for length in (16, 32, 48)]
    records = [
        make("attention", "attention", "eager", [1.0, us, 1000.0], p)
        for p, us in zip(sizes, (2.0, 4.0, 9.0), strict=True)
    ]
    failed = make("attention", "attention", "sdpa", [], sizes[0], status="error", reason="[/]", timing_mode=None)
    with RunWriter.create(tmp_path / "run", RunHead(started_at="2026-01-02T03:04:05.678+00:00")) as writer:
        writer.append([*records, failed])
    return tmp_path / "run"


def test_medians_of_cells(run: Path) -> None:
    rows = {row["kernel"]: row for row in module.overview(run).iter_rows(named=True)}
    # Medians of the three cells are 2, 4 and 9 microseconds.
    assert (rows["eager"]["cells"], rows["eager"]["samples"], rows["eager"]["median_us"]) == (3, 9, 4.0)
    assert rows["sdpa"]["status"] == "error"
    assert rows["sdpa"]["median_us"] is None


def test_show_gives_the_overview_of_a_large_run(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "LARGE_BYTES", 0)
    assert main(["show", str(run)]) == 0
    shown = capsys.readouterr().out
    assert "4 cells; medians of cells of all sizes" in shown
    assert "4.00 us" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["show", str(run), "--all"]) == 0
    assert "error: [/]" in capsys.readouterr().out


def test_a_damaged_line_is_one_line_of_error(run: Path) -> None:
    with open(run / "records.jsonl", "ab") as out:
        out.write(b"garbage\n")
    with pytest.raises(module.BadInput, match="can't be read"):
        module.print_overview(Console(), run)
