"""What `report` writes: golden Markdown, hostile names in every format, strict JSON, sizes, Runs at the edge."""

import csv
import io
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes

import polars as pl
import pytest
from hostile import NASTY, hostile_run
from made_up import FIXTURES, RUN, Change, changed_run

from andrea_bench.cli.main import main
from andrea_bench.report import html as html_module
from andrea_bench.report.charts import svg
from andrea_bench.report.content import Chart, Subject
from andrea_bench.report.html import embedded, html
from andrea_bench.report.markdown import MOST_CHARACTERS, markdown
from andrea_bench.report.pages import pages
from andrea_bench.report.pages.rows import shape
from andrea_bench.report.rows import group_rows
from andrea_bench.report.subject import read_runs
from andrea_bench.statistics import median, median_interval
from andrea_bench.store import read_run

GOLDEN = FIXTURES / "run_fake.md"


def made(*runs: Path) -> list[Any]:
    return pages(Subject(read_runs(runs, lambda head: None), None, "andrea-bench report run_fake"))


class Tags(HTMLParser):
    """All elements with their attributes, and the texts of script elements."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self._script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._script = tag == "script"
        if self._script:
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self._script:
            self.scripts[-1] += data

    def handle_endtag(self, tag: str) -> None:
        self._script = False


def test_markdown_is_as_it_was() -> None:
    text = markdown(made(RUN), "run_fake", {})
    golden = GOLDEN.read_text(encoding="utf-8")
    assert text == golden, f"if the change is meant, write the new text of markdown(...) to {GOLDEN}"


def test_markdown_says_what_the_samples_say() -> None:
    records = {r.cell_id: r for r in read_run(RUN).records}
    fused = next(r for r in records.values() if r.kernel == "fused_qkv" and r.suite == "projection")
    low, high = median_interval(fused.samples_us)
    text = GOLDEN.read_text(encoding="utf-8")
    row = next(line for line in text.splitlines() if line.startswith("| fused") and fused.cell_id in line)
    assert f"{median(fused.samples_us):.0f} us | {low:.0f} us | {high:.0f} us | 10 |" in row


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hostile_run(tmp_path_factory.mktemp("nasty") / "run")


def test_hostile_names_stay_text_in_html(nasty: Path) -> None:
    text = html(made(nasty), "".join(NASTY))
    found = Tags(text)
    kinds = {tag for tag, _ in found.tags}
    assert "img" not in kinds
    assert [a for _, attrs in found.tags for a in attrs if a.startswith("on")] == []
    assert len(found.scripts) == 2
    data = json.loads(found.scripts[0], parse_constant=lambda token: pytest.fail(token))
    values = {v for c in data["columns"] for v in c.get("words", c.get("values", []))}
    assert {r.kernel for r in read_run(nasty).records} <= values
    # Nothing is fetched from anywhere: no address stands in an attribute but those of XML namespaces.
    for _, attrs in found.tags:
        for name, value in attrs.items():
            assert "//" not in (value or "") or name.startswith("xmlns"), (name, value)


def test_hostile_names_keep_a_markdown_table_whole(nasty: Path) -> None:
    text = markdown(made(nasty), "".join(NASTY), {})
    assert len(text) < MOST_CHARACTERS
    table: list[int] = []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            table.append(len(re.findall(r"(?<!\\)\|", line)))
        else:
            assert len(set(table)) <= 1, line
            table = []
    # A tag of ours opens a line; any other `<` is escaped.
    allowed = re.compile(r"^<details><summary>[^<>]*</summary>$|^</details>$")
    for line in text.splitlines():
        assert allowed.match(line) or not re.search(r"(?<!\\)<", line), line
    assert text.count("<details>") == text.count("</details>")


def test_hostile_names_reach_pictures_as_values(nasty: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_bytes((nasty / "run.json").read_bytes())
    lines = (nasty / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(lines[:7]))
    assert main(["report", str(run), "--svg", str(tmp_path / "svg")]) == 0
    file = tmp_path / "svg" / "fusing-1-1.svg"
    root = ET.fromstring(file.read_text(encoding="utf-8"))
    texts = [t.text or "" for t in root.iter("{http://www.w3.org/2000/svg}text")]
    marks = [e.get("aria-label") or "" for e in root.iter() if e.get("aria-roledescription") == "bar"]
    rows = next(g for g in group_rows(read_run(nasty).records) if g.suite == "projection").rows
    names = [r.record.kernel for r in rows if r.record.op == "qkv_projection" and r.median_us is not None]
    assert len(set(names) & set(NASTY)) == 2 and len(marks) == len(names) == 4
    for name, mark in zip(names, marks, strict=True):
        assert f"{name} !" in texts and mark.startswith(f"{name}: ")
    assert (tmp_path / "svg" / "fusing-1-1.png").read_bytes().startswith(b"\x89PNG")


def test_a_picture_shows_what_xml_cannot_hold() -> None:
    """In a process of its own: the drawing library ends the process at such a character."""
    code = (
        "from andrea_bench.report.charts import bars, png, svg\n"
        "one = dict(name='a\\x01b\\uffff', value=1.0, low=0.9, high=1.1, text='1\\x1b', about='x\\x00')\n"
        "picture = bars([one], 'us')\n"
        "assert png(picture)\n"
        "print(ascii(svg(picture)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert r"a\u2401b\ufffd" in done.stdout and r"1\u241b" in done.stdout and r"x\u2400" in done.stdout


def test_embedded_json_is_strict_and_cannot_end_its_script() -> None:
    text = embedded({"values": [*NASTY, float("inf"), float("nan"), -0.5]})
    assert not re.search("[<>&\u2028\u2029]", text)
    assert json.loads(text, parse_constant=lambda t: pytest.fail(t))["values"] == [*NASTY, None, None, -0.5]


def test_csv_and_parquet_hold_the_cells(nasty: Path, tmp_path: Path) -> None:
    files = [tmp_path / "cells.csv", tmp_path / "cells.parquet"]
    assert main(["report", str(nasty), str(RUN), "--csv", str(files[0]), "--parquet", str(files[1])]) == 0
    content = files[0].read_bytes()
    assert b"\r" not in content
    rows = list(csv.DictReader(io.StringIO(content.decode(), newline="")))
    records = [r for run in (nasty, RUN) for r in read_run(run).records]
    assert [row["kernel"] for row in rows] == [r.kernel for r in records]
    frame = pl.read_parquet(files[1])
    assert frame.height == len(records)
    for row, record in zip(frame.iter_rows(named=True), records, strict=True):
        assert row["n"] == len(record.samples_us) and row["head_dim"] == record.problem.head_dim
        if record.samples_us:
            assert row["median_us"] == pytest.approx(median(record.samples_us))
            assert (row["low_us"], row["high_us"]) == median_interval(record.samples_us)
            assert row["tflops"] == (pytest.approx(record.flops / row["median_us"] / 1e6) if record.flops else None)
        else:
            assert row["median_us"] is None and row["tflops"] is None
    own = frame.filter(pl.col("run") == str(RUN))
    # A copy is not compared with a projection.
    assert own.filter(pl.col("kernel") == "split_heads")["median_over_baseline"].is_null().all()
    groups = {(g.suite, g.problem.label()): g for g in group_rows(read_run(RUN).records)}
    for row in own.filter(pl.col("median_over_baseline").is_not_null()).iter_rows(named=True):
        if row["suite"] == "projection":
            group = next(g for key, g in groups.items() if any(row["cell_id"] == r.record.cell_id for r in g.rows))
            baseline = group.row("per_head_loop")
            assert baseline and baseline.median_us
            assert row["median_over_baseline"] == pytest.approx(row["median_us"] / baseline.median_us)


def no_times(record: dict[str, Any]) -> None:
    record |= {"status": "error", "reason": "out of luck", "samples_us": [], "order": [], "block": [], "round": []}


EDGES: dict[str, tuple[Change | None, int | None]] = {
    "every cell failed": (no_times, None),
    "one cell": (None, 1),
    "none": (None, 0),
}


@pytest.mark.parametrize("name", EDGES)
def test_runs_at_the_edge_render(name: str, tmp_path: Path) -> None:
    change, keep = EDGES[name]
    run = changed_run(tmp_path / "run", change)
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(lines[:keep]))
    # A complete Run without records is refused; one that was cut off before its first is not.
    head = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(head | {"complete": keep is None}))
    out = {kind: tmp_path / f"out.{kind}" for kind in ("html", "markdown", "csv", "parquet", "svg")}
    arguments = [word for kind, file in out.items() for word in (f"--{kind}", str(file))]
    assert main(["report", str(run), *arguments]) == 0
    absent = {page.name for page in made(run) if page.absent}
    text = out["html"].read_text(encoding="utf-8")
    assert "Left out" in text and {"splits", "layer"} <= absent
    assert ("fusing" in absent) == (name != "one cell")
    if name == "every cell failed":
        assert "out of luck" in text and "answers" in absent
    assert pl.read_parquet(out["parquet"]).height == len(lines[:keep])
    drawn = [part.name for page in made(run) for part in page.parts if isinstance(part, Chart)]
    assert {file.name for file in out["svg"].iterdir()} == {f"{n}.{kind}" for n in drawn for kind in ("svg", "png")}
    assert bool(drawn) == (name == "one cell")


def test_machines_and_revisions_are_told_apart(tmp_path: Path) -> None:
    other = changed_run(tmp_path / "other", None, {"host": "other-host"})
    again = changed_run(tmp_path / "again", None, {"host": "other-host"})
    assert len({run.label for run in read_runs([RUN, other, again], lambda head: None)}) == 3
    text = markdown(made(RUN, other, again), "three", {})
    assert text.count("bench-host") > 3 and text.count("other-host") > 3
    names = [part.name for page in made(RUN, other, again) for part in page.parts if isinstance(part, Chart)]
    assert len(names) == len(set(names)) > 20


def test_facts_alone_render(tmp_path: Path) -> None:
    html_file, markdown_file = tmp_path / "facts.html", tmp_path / "facts.md"
    facts = str(FIXTURES / "facts_small.json")
    assert main(["report", "--facts", facts, "--html", str(html_file), "--markdown", str(markdown_file)]) == 0
    text = markdown_file.read_text(encoding="utf-8")
    assert "Structure of the compiled kernels" in text and "rtx\\_4090" in text
    assert "waste-rtx-4090" in html_file.read_text(encoding="utf-8")


def test_ten_thousand_records_stay_small_and_markdown_fits(tmp_path: Path) -> None:
    records = [json.loads(line) for line in (RUN / "records.jsonl").read_text().splitlines()]
    timed = [r for r in records if r["suite"] == "projection"]
    run = changed_run(tmp_path / "run")
    with open(run / "records.jsonl", "w") as out:
        for at in range(10_000 // len(timed)):
            for number, record in enumerate(timed):
                problem = {**record["problem"], "n_layer": at + 1}
                out.write(json.dumps({**record, "problem": problem, "cell_id": f"{at:08x}{number:08x}"}) + "\n")
    made_pages = made(run)
    text = html(made_pages, "large")
    assert len(text.encode()) < 5_000_000
    assert f'"count":{10_000 // len(timed) * len(timed)}' in text
    assert len(markdown(made_pages, "large", {})) < MOST_CHARACTERS


def test_pictures_beyond_the_room_are_left_out_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    made_pages = made(RUN)
    charts = [part for page in made_pages for part in page.parts if isinstance(part, Chart)]
    whole = html(made_pages, "x")
    assert "no room for this chart" not in whole and whole.count("<figure") == whole.count('role="group"') == len(
        charts
    )
    room = sum(len(svg(chart.picture)) for chart in charts[:3]) + 500
    monkeypatch.setattr(html_module, "MOST_BYTES", 0)
    monkeypatch.setattr(html_module, "PICTURE_BYTES", room)
    text = html(made_pages, "x")
    drawn = text.count('role="group"')
    assert 3 <= drawn < len(charts) and text.count("There is no room for this chart here") == len(charts) - drawn
    assert all(f'<svg role="group" aria-label="{chart.title}"' in text for chart in charts[:3])
    # Their figures stay, and where the file has room for all, all are drawn.
    assert all(f'id="{chart.name}-data"' in text for chart in charts)
    monkeypatch.setattr(html_module, "MOST_BYTES", len(whole.encode()) + 10_000)
    assert html(made_pages, "x").count('role="group"') == len(charts)


def test_pictures_are_linked_from_markdown_beside_them(tmp_path: Path) -> None:
    run = changed_run(tmp_path / "run")
    lines = (run / "records.jsonl").read_text().splitlines(keepends=True)
    (run / "records.jsonl").write_text("".join(lines[:12]))
    file = tmp_path / "docs" / "report.md"
    file.parent.mkdir()
    odd = os.fsdecode(b"my pictures (1) <b> [x] \\ 50% \xff")
    assert main(["report", str(run), "--markdown", str(file), "--svg", str(tmp_path / odd)]) == 0
    # An address without brackets ends at a space or at a parenthesis that has no partner.
    links = re.findall(r"!\[[^\n]*\]\(([!-'*-;=?-~]+)\)\n", file.read_text(encoding="utf-8"))
    assert len(links) == len(list((tmp_path / odd).glob("*.svg"))) >= 2
    assert all((file.parent / os.fsdecode(unquote_to_bytes(link))).is_file() for link in links)


def cells(line: str) -> list[str]:
    """The texts of a row of a Markdown table."""
    return [re.sub(r"\\(.)", r"\1", text.strip()) for text in re.split(r"(?<!\\)\|", line)[1:-1]]


def row_table(text: str) -> list[dict[str, str]]:
    """The rows below `All rows` of a Markdown report."""
    lines = text.partition("\n## All rows")[2].partition("</details>")[0].splitlines()
    head, _, *rows = [cells(line) for line in lines if line.startswith("|")]
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_markdown_rows_say_run_device_validity_and_cell(tmp_path: Path) -> None:
    def doubted(record: dict[str, Any]) -> None:
        record["device"] = "cuda:1"
        record["validity"] = {"verdict": "suspect", "reasons": ["busy"]}

    other = changed_run(tmp_path / "other", doubted, {"host": "other-host"}, suites=("projection",))
    rows = row_table(markdown(made(RUN, other), "two", {}))
    records = [(run.label, row.record) for run in read_runs([RUN, other], lambda head: None) for row in run.rows()]
    # Two Runs have more rows than are shown; each stands once.
    shown = {(row["run"], row["cell_id"]): row for row in rows}
    assert 50 <= len(shown) == len(rows) < len(records)
    stored = {(label, record.cell_id): record for label, record in records}
    for key, row in shown.items():
        record = stored[key]
        assert (row["device"], row["validity"]) == (record.device, record.validity.verdict)
        assert (row["kernel"], row["status"]) == (record.kernel, record.status)
    assert {row["device"] for row in rows} == {"cpu", "cuda:1"}


def test_cells_that_answers_cite_are_found_in_markdown(tmp_path: Path) -> None:
    """Also where a page of three Runs has room for a few rows of each table only."""
    runs = [RUN, *(changed_run(tmp_path / host, None, {"host": host}) for host in ("one", "two"))]
    for several in (runs[:1], runs):
        text = markdown(made(*several), "x", {})
        cited = set(re.findall(r"\b[0-9a-f]{16}\b", " ".join(re.findall(r"\(cells [^)]*\)", text))))
        rows = row_table(text)
        labels = {row["run"] for row in rows}
        assert len(cited) >= 9 and len(labels) == len(several)
        for label in labels:
            assert cited <= {row["cell_id"] for row in rows if row["run"] == label}
    assert len(rows) < 3 * 76 and len(text) < MOST_CHARACTERS


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--html", "x.html"], "name a Run"),
        ([str(RUN)], "say what to write"),
        ([str(RUN), "--html", "/dev/full/x.html"], "can't be written"),
        ([str(RUN), "--markdown", "-"], "name a file"),
        (["no-such-run", "--html", "x.html"], "no such Run"),
        (["--facts", str(FIXTURES / "facts_small.json"), "--csv", "x.csv"], "cells of Runs"),
    ],
)
def test_what_it_cannot_do_is_one_line(
    arguments: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 2
    said = capsys.readouterr().err
    assert says in said and said.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_json_names_what_was_written_and_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.md"
    assert main(["report", str(RUN), "--markdown", str(file), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["written"] == [str(file)] and "structure" in said["left_out"]


@pytest.mark.parametrize("coding", ["cp1252", "ascii"])
def test_files_are_utf8_whatever_the_terminal_writes(coding: str, nasty: Path, tmp_path: Path) -> None:
    file = tmp_path / "β.md"
    code = "import sys; from andrea_bench.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "report", str(nasty), "--markdown", str(file)]
    environment = {"PYTHONIOENCODING": coding, "PATH": "/usr/bin:/bin", "PYTHONUTF8": "0", "LC_ALL": "C"}
    done = subprocess.run(command, env=environment, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Zürich-β" in file.read_bytes().decode("utf-8")


@pytest.mark.parametrize(
    ("samples", "bins"),
    [
        ([], ""),
        ([5.0], "000000900000"),
        ([1.0, 1.0], "000000900000"),
        ([0.0, 12.0], "900000000009"),
        ([0.0] * 90 + [12.0], "900000000001"),
    ],
)
def test_the_shape_of_samples(samples: list[float], bins: str) -> None:
    assert shape(samples) == bins
