"""Where `report` writes and what it says meanwhile: odd paths, odd terminals, closed pipes, very many rows."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_up import FIXTURES, RUN, changed_run

from andrea_bench.cli.main import main
from andrea_bench.report.content import MeasuredRun, Subject
from andrea_bench.report.html import html
from andrea_bench.report.pages.rows import MOST_ROWS, all_rows
from andrea_bench.report.rows import GroupRows
from andrea_bench.report.subject import read_runs

CODE = "import sys; from andrea_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
FACTS = str(FIXTURES / "facts_small.json")  # the quickest of reports


def run(arguments: list[str | bytes], **variables: str) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    return subprocess.run([sys.executable, "-c", CODE, *arguments], env=environment, capture_output=True, check=False)


@pytest.mark.parametrize("name", ["my runs/β x", "rack[/a]", "x[red]y :fire:", "a'b\"c", "$x$ `c`", "-"])
def test_a_path_is_kept_and_said_as_it_is(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / f"{name}.html"
    file.parent.mkdir(exist_ok=True)
    assert main(["report", "--facts", FACTS, "--html", str(file)]) == 0
    assert capsys.readouterr().err == f"wrote {file}\n"
    assert file.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_bytes_that_are_no_text_are_a_path_too(tmp_path: Path) -> None:
    file = os.fsencode(tmp_path) + b"/caf\xe9 \xff.html"
    done = run(["report", "--facts", FACTS, "--html", file])
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False), done.stderr
    with open(file, encoding="utf-8") as written:
        assert "caf" in written.read()


@pytest.mark.parametrize("coding", ["cp1252", "ascii", "utf-8"])
@pytest.mark.parametrize(
    "terminal", [{"NO_COLOR": "1"}, {"TERM": "dumb", "COLUMNS": "40"}, {"LC_ALL": "C", "PYTHONUTF8": "0"}]
)
def test_any_terminal_gets_the_whole_report(coding: str, terminal: dict[str, str], tmp_path: Path) -> None:
    file = tmp_path / "β.md"
    done = run(["report", "--facts", FACTS, "--markdown", str(file), "--json"], PYTHONIOENCODING=coding, **terminal)
    assert done.returncode == 0, done.stderr
    assert b"\x1b" not in done.stdout + done.stderr
    said = json.loads(done.stdout.decode(coding), parse_constant=lambda token: pytest.fail(token))
    assert said["written"] and "Structure of the compiled kernels" in file.read_text(encoding="utf-8")


def test_a_closed_pipe_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "a.md"
    command = f'"{sys.executable}" -c "{CODE}" report --facts "{FACTS}" --markdown "{file}" --json 2>"$1" | head -0'
    errors = tmp_path / "errors"
    environment = {"PATH": "/usr/bin:/bin", "PYTHONUNBUFFERED": "1"}
    subprocess.run(["bash", "-c", command, "bash", str(errors)], env=environment, check=True)
    assert "Traceback" not in errors.read_text() and file.stat().st_size > 1000


def test_fifty_thousand_rows_say_how_many_are_hidden() -> None:
    stored = read_runs([RUN], lambda head: None)[0]
    rows = [row for row in stored.rows() if row.median_us is not None]
    many = [rows[at % len(rows)] for at in range(50_000)]
    group = GroupRows("projection", rows[0].record.problem, "cpu", many)
    page = all_rows(Subject([MeasuredRun("large", stored.head, [group], [])], None, "andrea-bench report"))
    hidden = f"{50_000 - MOST_ROWS} of 50000 rows are hidden; `report --csv` writes all."
    assert hidden in page.parts
    text = html([page], "large")
    assert len(text.encode()) < 5_000_000 and f"{50_000 - MOST_ROWS} of 50000 rows are hidden" in text


@pytest.mark.parametrize("sample", ["NaN", "Infinity", "-Infinity", "-1.0", "0.0"])
def test_a_time_that_is_no_number_is_a_row_without_one(sample: str, tmp_path: Path) -> None:
    """As other writers leave them: shown as absent, with the reason, in JSON that every reader takes."""
    folder = changed_run(tmp_path / "run", suites=("projection",))
    records = folder / "records.jsonl"
    first = json.loads(records.read_text().splitlines()[0])
    assert first["kernel"] == "per_head_loop"
    records.write_text(records.read_text().replace(str(first["samples_us"][0]), sample, 1))
    file = tmp_path / "a.html"
    assert main(["report", str(folder), "--html", str(file)]) == 0
    inside = file.read_text(encoding="utf-8").partition('id="rows-data">')[2].partition("</script>")[0]
    data = json.loads(inside, parse_constant=lambda token: pytest.fail(token))
    columns = {c["name"]: c.get("values") or [c["words"][at] for at in c["at"]] for c in data["columns"]}
    assert columns["time (us)"][0] is None and columns["n"][0] == 10
    assert columns["reasons"][0] == "its samples are not all positive numbers"
    assert columns["time (us)"][1] is not None
