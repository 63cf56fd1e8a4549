"""The verb history: a table, strict JSON and a page that loads nothing."""

import json
import re
from pathlib import Path

import pytest
from asv_files import COUNTED, TIME, commit, times, write

from andrea_bench.cli.main import main

PARAMS = [["'eager'", "'sdpa'"], ["64"]]


@pytest.fixture(autouse=True)
def _results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight commits: eager gets 30 % slower at the fifth, a spill appears at the third."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    for number in range(1, 9):
        eager = 1e-3 * (1.3 if number >= 5 else 1.0) * (1 + 0.005 * (number % 2))
        spilled = 0 if number < 3 else 16
        row = times([eager, None if number == 2 else 2e-3], PARAMS)
        write(Path(".asv/results"), number, {TIME: row, COUNTED: [[spilled], [["'<b>exact'"]], "1"]})


def test_the_table_names_the_commit_of_each_step(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "8 commits, 00000001 to 00000008" in out
    assert "from 0 at 00000003" in out and "16 bytes" in out
    assert re.search(r"\+30 % at 0000000\s?5", out) and "▁·▁▁▁▁▁▁" in out


def test_json_is_strict_and_holds_every_value(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", r"time_call\(sdpa", "--json"]) == 0
    document = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(text))
    assert document["commits"] == [commit(n) for n in range(1, 9)]
    (series,) = document["series"]
    assert series["parameters"] == {"kernel": "sdpa", "head_dim": "64"}
    assert series["values"] == [2e-3, None] + [2e-3] * 6 and series["status"][1] == "failed"
    assert series["steps"] == [] and series["from_best"] == 0.0 and len(document["dates_ms"]) == 8


def test_only_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--changed", "--json"]) == 0
    steps = {s["benchmark"]: s["steps"] for s in json.loads(capsys.readouterr().out)["series"]}
    assert [step["commit"] for step in steps[TIME]] == [commit(5)]
    assert steps[COUNTED] == [{"commit": commit(3), "before": commit(2), "old": 0.0, "new": 16.0}]


def test_the_page_loads_nothing_and_escapes_names(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", "--html", "history.html"]) == 0
    page = Path("history.html").read_text()
    outside = set(re.findall(r"""(?:src|href)\s*=\s*["'](https?:[^"']*)""", page))
    assert not outside and "<svg" in page and "Changes of level" in page
    assert "<b>exact" not in page and "00000005" in page


def test_the_page_of_a_report(capsys: pytest.CaptureFixture[str]) -> None:
    """What changed stands in tables and is drawn; so it does in Markdown, beside what the report lacks."""
    assert main(["report", "--history", ".asv/results", "--html", "r.html", "--markdown", "r.md"]) == 0
    page, text = Path("r.html").read_text(), Path("r.md").read_text()
    assert 'id="history"' in page and page.count("<svg") == 2 and "history on node" in page
    assert not re.findall(r"""(?:src|href)\s*=\s*["'](https?:[^"']*)""", page)
    for said in ("Changes of level", "+30 %", "from 0", "16 bytes", "1.31 ms", "Above the best earlier level"):
        assert said in page and said in text.replace("\\", "")
    assert "## History" in text


def test_a_report_of_one_commit_says_why_it_has_no_history(capsys: pytest.CaptureFixture[str]) -> None:
    write(Path("one"), 1, {TIME: times([1e-3, 2e-3], PARAMS)})
    assert main(["report", "--history", "one", "--markdown", "r.md", "--json"]) == 0
    left_out = json.loads(capsys.readouterr().out)["left_out"]
    assert left_out["history"] == "no benchmark has values at two commits yet"
    assert main(["report", "--history", "none", "--markdown", "r.md"]) == 2
    assert "none: there are no results of asv" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "no benchmark fits"),
        (["--results", "none"], "no results of asv"),
        (["--machine", "x"], "no machine"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["history", *arguments]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_file_that_is_cut_off_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    file = Path(".asv/results/node/00000004-venv-py3.11.json")
    file.write_text(file.read_text()[:200])
    assert main(["history"]) == 2
    assert str(file) in capsys.readouterr().err
