"""The page that compares Runs: `compare`'s verdicts, what forbids them, in each format."""

import json
import re
from pathlib import Path
from typing import Any

import made_up
import pytest
from made_up import in_processes

from andrea_bench.cli.main import main
from andrea_bench.report.content import Chart, ComparedCell, Comparison, Subject
from andrea_bench.report.html import html
from andrea_bench.report.markdown import markdown
from andrea_bench.report.pages.comparison import comparison
from andrea_bench.report.subject import read_runs

COLUMNS = 6


def changed_run(folder: Path, *arguments: Any, **named: Any) -> Path:
    """A small one, so that nothing is cut from its page."""
    return made_up.changed_run(folder, *arguments, suites=("projection",), **named)


def report(tmp_path: Path, *runs: Path) -> str:
    """The Markdown of the page alone."""
    file = tmp_path / "report.md"
    assert main(["report", *map(str, runs), "--markdown", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    return text.partition("## Comparison of Runs")[2].partition("\n## ")[0]


def slower(record: dict[str, Any]) -> None:
    in_processes(record, 1.3 if record["kernel"] == "fused_qkv" else 1.0003)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return changed_run(tmp_path / "base", in_processes)


def test_verdicts_are_those_of_compare(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = changed_run(tmp_path / "head", slower, {"git": {"commit": "abcdef0123456789", "dirty": True}},
                       started_at="2026-02-01T12:00:00+00:00")  # fmt: skip
    text = report(tmp_path, base, head)
    capsys.readouterr()
    assert main(["compare", str(base), str(head), "--json"]) == 0
    compared = json.loads(capsys.readouterr().out)
    counts = {cell["verdict"] for cell in compared["cells"]}
    assert counts >= {"slower", "same"}
    rows = [line for line in text.splitlines() if re.search(r"\| [0-9a-f]{16} \|$", line)]
    assert len(rows) == len(compared["cells"])
    for cell in compared["cells"]:
        row = next(line for line in rows if cell["cell_id"] in line)
        assert f"| {cell['verdict'].replace('_', chr(92) + '_')} |" in row
        assert f"| {cell['ratio']:.3f} ({cell['low']:.3f} to {cell['high']:.3f}) |" in row
    worst = rows[0]
    assert "fused\\_qkv" in worst and "| 1.300 (" in worst and "lies beyond the allowance of 5 %" in worst
    assert "| 30 and 30 |" in worst and "n 30 processes a side" in text
    assert compared["reason"] in text
    # Machines, dates and revisions.
    assert "2026-02-01T12:00" in text and "abcdef012345 (changed)" in text


def test_the_chart_draws_each_ratio_with_its_interval(base: Path, tmp_path: Path) -> None:
    head = changed_run(tmp_path / "head", slower)
    assert main(["report", str(base), str(head), "--svg", str(tmp_path / "svg")]) == 0
    marks = re.findall(r'aria-label="([^"]*)"', (tmp_path / "svg" / "comparison-1.svg").read_text(encoding="utf-8"))
    worst = next(mark for mark in marks if mark.startswith("projection fused_qkv"))
    assert "1.300 (" in worst and "slower" in worst and "cell_id" in worst


def test_one_process_a_side_has_a_ratio_but_no_interval(tmp_path: Path) -> None:
    def later(record: dict[str, Any]) -> None:
        record["samples_us"] = [1.5 * us for us in record["samples_us"]]

    text = report(tmp_path, changed_run(tmp_path / "base"), changed_run(tmp_path / "head", later))
    assert "| 1.500 | inconclusive | 1.5000, too few processes for an interval" in text
    assert "points have no interval: too few processes" in text and "| 1.500 (" not in text


def test_each_further_run_stands_against_the_first(base: Path, tmp_path: Path) -> None:
    again = changed_run(tmp_path / "again", slower, {"host": "second"})
    third = changed_run(tmp_path / "third", lambda r: in_processes(r, 0.5), {"host": "third"})
    text = report(tmp_path, base, again, third)
    parts = text.split("\n### ")[1:]
    assert [re.match(r"(\S+?),.* against (\S+?),", part.replace("\\", ""))[1] for part in parts] == ["second", "third"]
    assert all(" against bench-host" in part for part in parts)
    assert "slower" in parts[0] and "| slower |" not in parts[1] and "| 0.500 (" in parts[1]


@pytest.mark.parametrize(
    ("environment", "protocol", "differs"),
    [
        ({"cpu": {"model": "Other CPU", "cores": 2}}, {}, "CPU model: "),
        ({"device": "cuda", "gpu": {"name": "NVIDIA H200"}}, {}, "device: cpu -> cuda"),
        ({}, {"threads": 7}, "threads: 1 -> 7"),
    ],
)
def test_what_forbids_a_comparison_is_named(
    environment: dict[str, Any], protocol: dict[str, Any], differs: str, base: Path, tmp_path: Path
) -> None:
    stored = json.loads((base / "run.json").read_text())
    head = changed_run(tmp_path / "head", slower, environment, protocol=stored["protocol"] | protocol)
    text = report(tmp_path, base, head).replace("\\", "")
    assert "- not comparable: " in text and differs in text
    rows = [line for line in text.splitlines() if re.search(r"\| [0-9a-f]{16} \|$", line)]
    assert len(rows) > 8 and all("| - | not comparable | " in row and differs in row for row in rows)
    assert "Ratios of" not in text


def test_another_timing_mode_is_not_comparable(base: Path, tmp_path: Path) -> None:
    def cold(record: dict[str, Any]) -> None:
        slower(record)
        if record["samples_us"]:
            record["cache"] = "cold"

    text = report(tmp_path, base, changed_run(tmp_path / "head", cold)).replace("\\", "")
    assert "| not comparable | cache: warm -> cold |" in text


def test_a_copy_of_the_first_is_said_not_judged(tmp_path: Path) -> None:
    text = report(tmp_path, changed_run(tmp_path / "base"), changed_run(tmp_path / "copy"))
    assert "not compared: " in text and "one is a copy of the other" in text


def test_names_of_cells_stay_text(base: Path, tmp_path: Path) -> None:
    bad = "<img src=x onerror=alert(1)>|[red]`c`"

    def named(record: dict[str, Any]) -> None:
        slower(record)
        record["kernel"] = bad if record["kernel"] == "fused_qkv" else record["kernel"]

    both = [changed_run(tmp_path / name, named, {"host": bad}) for name in ("one", "two")]
    file = tmp_path / "two.html"
    assert main(["report", str(base), str(both[0]), "--html", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "<img" not in text and "&lt;img src=x onerror=alert(1)&gt;|[red]`c`" in text
    page = report(tmp_path, base, both[0])
    for line in page.splitlines():
        if re.search(r"\| [0-9a-f]{16} \|$", line):
            assert len(re.findall(r"(?<!\\)\|", line)) == COLUMNS + 1, line


def test_thousands_of_cells_are_cut_and_said(base: Path) -> None:
    run = read_runs([base], lambda head: None)[0]
    cells = [ComparedCell(f"{i:016x}", f"cell {i}", "same", "r" * 150, "1.000", (9, 9), 1.0) for i in range(10_000)]
    one = comparison(Subject([run, run], None, "", comparisons=[Comparison("a", "b", "same: 10000 same", [], cells)]))
    assert "9000 of 10000 cells are hidden; `compare --json` has all." in one.parts
    assert len(html([one], "large").encode()) < 1_000_000
    assert len(markdown([one], "large", {})) < 60_000


def test_the_chart_draws_no_cell_that_the_table_hides(base: Path) -> None:
    run = read_runs([base], lambda head: None)[0]
    cells = [ComparedCell(f"{i:016x}", f"cell {i}", "broken", "r", "-") for i in range(999)]
    cells += [ComparedCell(f"{i:016x}", f"cell {i}", "same", "r", "1.000", (9, 9), 1.0) for i in range(999, 1100)]
    page = comparison(Subject([run, run], None, "", comparisons=[Comparison("a", "b", "broken: 999", [], cells)]))
    (chart,) = (part for part in page.parts if isinstance(part, Chart))
    assert "1 points have no interval" in chart.about and "more are in the table" not in chart.about
