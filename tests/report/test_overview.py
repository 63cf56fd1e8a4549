"""The overview of a large Run and of its Parquet copy, against medians by hand; how Records are read for it."""

import json
import math
from pathlib import Path

import pytest
from made_up import changed_run
from test_rows import make

from andrea_bench import Problem
from andrea_bench.cli.main import main
from andrea_bench.errors import BadInput
from andrea_bench.record import RunHead, Validity
from andrea_bench.report.rows import group_rows
from andrea_bench.report.terminal import tally
from andrea_bench.statistics import median, median_interval
from andrea_bench.store import RunWriter, read_run

pl = pytest.importorskip("polars", reason="the overview is polars'")
from andrea_bench.report import overview as module  # noqa: E402
from andrea_bench.report import scan  # noqa: E402

FAKE = Path(__file__).parents[1] / "fixtures" / "run_fake"
NOW = "2026-01-02T03:04:05.678+00:00"
END = f"""\
4 cells: 3 ok, 1 error, measured from {NOW}
times: 2 valid, 1 suspect, 0 invalid; most often: steal of N % (1 cell)
without a time: 1 cell; most often: error: [/] (1 cell)
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    sizes = [Problem(d_model=768, n_head=12, seq_len=length) for length in (16, 32, 48)]
    records = [
        make("attention", "attention", "eager", [1.0, us, 1000.0], p)
        for p, us in zip(sizes, (2.0, 4.0, 9.0), strict=True)
    ]
    records[1].validity = Validity(verdict="suspect", reasons=["steal of 3 %", "steal of 4 %"])
    failed = make("attention", "attention", "sdpa", [], sizes[0], status="error", reason="[/]", timing_mode=None)
    machine = {"device": "cpu", "host": "tower", "cpu": {"model": "AMD EPYC"}}
    with RunWriter.create(tmp_path / "run", RunHead(started_at=NOW, environment=machine)) as writer:
        writer.append([*records, failed])
    return tmp_path / "run"


def overview_of(run: Path) -> pl.DataFrame:
    return module.overview(module.run_cells(run))


def test_medians_of_cells(run: Path) -> None:
    rows = {row["kernel"]: row for row in overview_of(run).iter_rows(named=True)}
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
    assert "Medians of cells of all sizes" in shown
    assert END + "on AMD EPYC (1 thread), host tower\n--all shows each group.\n" in shown
    assert "4.00 us" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert main(["show", str(run), "--all"]) == 0
    assert "error: [/]" in capsys.readouterr().out


def test_cells_are_counted_as_from_all_records() -> None:
    counts = module.tally_cells(module.run_cells(FAKE))
    assert counts == tally(group_rows(read_run(FAKE).records)) and counts.doubts.total() == 2


def test_a_copy_of_several_runs_names_the_first(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "cells.parquet"
    others = [changed_run(tmp_path / f"other {n}") for n in range(3)]
    assert main(["report", str(run), *map(str, others), "--parquet", str(file)]) == 0
    _, since, origin = module.parquet_cells(file)
    assert since == NOW and origin == f"on cpu; a copy of {others[0]}, {others[1]}, {others[2]} and 1 more"


def test_a_damaged_line_is_one_line_of_error(run: Path) -> None:
    with open(run / "records.jsonl", "ab") as out:
        out.write(b"garbage\n")
    with pytest.raises(BadInput, match=r"records\.jsonl, line 5: is not JSON"):
        module.run_cells(run)


def test_the_parquet_copy_says_the_same(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "cells.parquet"
    assert main(["report", str(run), "--parquet", str(file)]) == 0
    cells, since, _ = module.parquet_cells(file)
    assert module.overview(cells).equals(overview_of(run)) and since == NOW
    capsys.readouterr()
    assert main(["show", str(file)]) == 0
    shown = capsys.readouterr().out
    origin = " ".join(f"on cpu; a copy of {run}".split())
    assert "4.00 us" in shown and END in shown and "".join(shown.partition(END)[2].split()) == "".join(origin.split())
    assert main(["show", str(file), "--json"]) == 0
    eager = next(row for row in json.loads(capsys.readouterr().out)["overview"] if row["kernel"] == "eager")
    assert (eager["cells"], eager["samples"], eager["median_us"]) == (3, 9, 4.0)
    assert main(["show", str(file), "--all"]) == 2
    assert "holds no samples" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"", b"PAR1garbage", None])
def test_other_parquet_files_are_one_line_of_error(
    content: bytes | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "other.parquet"
    if content is None:
        pl.DataFrame({"suite": [1]}).write_parquet(file)
    else:
        file.write_bytes(content)
    assert main(["show", str(file)]) == 2
    said = capsys.readouterr().err
    assert str(file) in said and said.count("\n") == 1


def test_records_are_scanned_as_they_are_read() -> None:
    records = read_run(FAKE).records
    frame = scan.scan_records(FAKE).collect()
    assert frame.schema == scan.SCHEMA and frame.height == len(records) > 20
    for row, record in zip(frame.iter_rows(named=True), records, strict=True):
        assert (row["cell_id"], row["seq_len"], row["causal"]) == (
            record.cell_id, record.problem.seq_len, record.problem.causal)  # fmt: skip
        assert (row["validity"], row["validity_reasons"]) == (
            record.validity.verdict, "; ".join(record.validity.reasons))  # fmt: skip
        assert row["n"] == len(record.samples_us)
        if record.samples_us:
            assert row["median_us"] == median(record.samples_us)
            assert (row["low_us"], row["high_us"]) == median_interval(record.samples_us)


def test_any_part_of_a_scan_is_that_part(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scan, "BATCH", 4)  # several batches
    whole = scan.scan_records(FAKE).collect()
    part = scan.scan_records(FAKE).filter(pl.col("n") > 0).select("median_us", "kernel").collect()
    assert part.equals(whole.filter(pl.col("n") > 0).select("median_us", "kernel")) and part.height > 4
    assert scan.scan_records(FAKE).head(6).collect().equals(whole.head(6))


def test_only_what_is_asked_for_is_decoded() -> None:
    (record, *_) = scan._records(FAKE / "records.jsonl", ["suite", "kernel", "seq_len"])
    assert set(record.__struct_fields__) == {"schema_version", "suite", "kernel", "problem"}


@pytest.mark.parametrize("sample", ["NaN", "Infinity", "0.0", "-1.0"])
def test_samples_that_are_no_times_give_no_figures(sample: str, run: Path) -> None:
    file = run / "records.jsonl"
    first, rest = file.read_text().split("\n", 1)
    assert "[1.0,2.0,1000.0]" in first
    file.write_text(first.replace("[1.0,2.0,1000.0]", f"[1.0,{sample},1000.0]") + "\n" + rest)
    row = scan.scan_records(run).collect().row(0, named=True)
    assert row["n"] == 3 and row["median_us"] is row["low_us"] is row["high_us"] is None
    whole = overview_of(run).filter(pl.col("kernel") == "eager")["median_us"]
    assert whole.to_list() == [6.5] and math.isfinite(whole[0])  # of the cells of 4 and 9


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b'{"suite": "attention"', "is cut off"),
        (b'{"schema_version": 99}\n', "schema_version 99"),
        (b'{"suite": "\xff"}\n', "is not UTF-8"),
        (b"[]\n", "not an object"),
    ],
)
def test_a_line_that_cannot_be_read_is_named(line: bytes, says: str, run: Path) -> None:
    with open(run / "records.jsonl", "ab") as out:
        out.write(line)
    with pytest.raises(BadInput, match=rf"line 5: .*{says}"):
        module.run_cells(run)
