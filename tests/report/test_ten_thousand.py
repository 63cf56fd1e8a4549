"""A Run of 10,000 records of a watched GPU, each Group with readings and doubts of its own: the HTML stays below 5 MB
and can be used, the Markdown fits, and what is not drawn is said."""

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browser import Browser, chromium
from made_up import RUN, changed_run, on_h200

from andrea_bench.report.charts import svg
from andrea_bench.report.content import AllRows, Chart, Page, Subject, Table
from andrea_bench.report.html import html
from andrea_bench.report.markdown import MOST_CHARACTERS, markdown
from andrea_bench.report.pages import pages
from andrea_bench.report.pages.alignment import MOST_CLIFFS, MOST_COSTS, MOST_NOTES, MOST_POINTS
from andrea_bench.report.pages.energy import MOST_POINTS as MOST_READINGS
from andrea_bench.report.pages.fusing import MOST_SIZES
from andrea_bench.report.subject import read_runs
from andrea_bench.store import read_run

FAILED = 40


def sized(record: dict[str, Any], **sizes: int) -> dict[str, Any]:
    return {**record, "problem": {**record["problem"], **sizes}}


def groups(records: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """2500 sizes of the projection by two kernels, then 250 head_dims in 10 batches by two kernels."""
    stored = {(r["suite"], r["kernel"]): r for r in records if r["samples_us"]}
    fusing = [stored["projection", kernel] for kernel in ("per_head_loop", "fused_qkv")]
    for batch, length in itertools.product(range(1, 51), range(1, 51)):
        yield [sized(record, batch=batch, seq_len=length, kv_len=length) for record in fusing]
    sdpa = stored["alignment", "sdpa"]
    for batch, width in itertools.product(range(1, 11), range(1, 251)):
        of = sized(sdpa, batch=batch, head_dim=width, d_model=width * sdpa["problem"]["n_head"])
        of["flops"] = 4096 * width
        yield [of, {**of, "kernel": "eager"}]


def measured(group: list[dict[str, Any]], at: int) -> Iterator[dict[str, Any]]:
    """The records of Group number `at`, whose clock falls, which was watched, and which is in doubt."""
    for number, record in enumerate(group):
        made = {**record, "cell_id": f"{at:08x}{number:08x}", "counters": {}}
        on_h200(made)
        made["counters"] |= {"gpu_sm_clock_mhz": 1980 - at % 97, "gpu_temperature_celsius": 40 + at % 31,
                             "gpu_memory_clock_mhz": 3201 - at % 5, "gpu_power_watts": 400.0 + at % 213}  # fmt: skip
        made["started_at"] = f"2026-01-31T{12 + at // 3600:02}:{at // 60 % 60:02}:{at % 60:02}+00:00"
        made["validity"] = {"verdict": "suspect", "reasons": [f"SM clock fell by {at / 7:.3f} % during the samples"]}
        made["samples_us"] = [round(us * (1 + (7 * at + number) % 11 / 5), 2) for us in record["samples_us"]]
        if at < FAILED and number:
            made |= {"status": "out_of_memory", "reason": "too large", "samples_us": [], "order": [], "block": [],
                     "round": [], "timing_mode": None}  # fmt: skip
        yield made


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = changed_run(
        tmp_path_factory.mktemp("large") / "run", None, {"device": "cuda", "gpu": {"name": "NVIDIA H200"}}
    )
    stored = [json.loads(line) for line in (RUN / "records.jsonl").read_text().splitlines()]
    with open(folder / "records.jsonl", "w") as out:
        for at, group in enumerate(groups(stored)):
            out.writelines(json.dumps(record) + "\n" for record in measured(group, at))
    return folder


@pytest.fixture(scope="module")
def made(run: Path) -> list[Page]:
    return pages(Subject(read_runs([run], lambda head: None), None, "andrea-bench report large"))


@pytest.fixture(scope="module")
def text(made: list[Page]) -> str:
    return html(made, "large")


def part(made: list[Page], name: str) -> list[Any]:
    return next(page.parts for page in made if page.name == name)


def test_the_html_holds_every_row_and_picture_below_5_mb(text: str, made: list[Page]) -> None:
    assert len(text.encode()) < 5_000_000
    assert '"count":10000' in text
    assert "no room for this chart" not in text
    assert len(markdown(made, "large", {})) < MOST_CHARACTERS


def test_readings_over_time_are_thinned_to_medians_and_it_is_said(made: list[Page], run: Path) -> None:
    chart = next(p for p in part(made, "energy") if isinstance(p, Chart) and p.name == "energy-1-temperature")
    together = -(-5000 // MOST_READINGS)
    assert f"the median of {together} Groups" in chart.about and f"{MOST_READINGS} points at most" in chart.about
    assert len(chart.data.rows) == -(-5000 // together)
    # The first bin, by hand: Groups 0 to 41, of 40 to 70 degrees, each started a second after the one before.
    heats = sorted(40 + at % 31 for at in range(together))
    middle = (heats[(together - 1) // 2] + heats[together // 2]) / 2
    at, series, *figures, of, cells = chart.data.rows[0]
    assert (together, float(at), series) == (42, 20.5, "GPU")
    assert [float(figure) for figure in figures] == [middle, 40, 70]
    assert (of, cells) == ("median of 42 Groups", f"{0:016x} to {41:08x}{0:08x}")


def test_costs_cliffs_and_lines_of_widths_are_cut_and_it_is_said(made: list[Page]) -> None:
    parts = part(made, "alignment")
    table = next(p for p in parts if isinstance(p, Table))
    assert table.folded and len(table.rows) == MOST_COSTS
    whole = int(table.caption.partition(f"; the dearest {MOST_COSTS} of ")[2])
    assert whole > 4000
    costs = [float(row[5].removesuffix(" %")) for row in table.rows]
    assert min(costs) > 100  # of times that differ by a factor of 1 to 3
    said = [p for p in parts if isinstance(p, str)]
    assert any(s.startswith(f"The dearest {MOST_CLIFFS} of ") for s in said)
    lines = [p for p in parts if isinstance(p, Chart)]
    assert 0 < sum(len(chart.data.rows) for chart in lines) <= MOST_POINTS
    assert f"{len(lines)} of 10 settings are drawn; the rows of all are on the last page." in said
    # The dearest cliffs of a chart carry a note, no more than there is room for.
    for chart in lines:
        noted = re.findall(r">(\d+): \+(\d+) %(?: !)?</text>", svg(chart.picture))
        assert len(noted) == MOST_NOTES and min(int(percent) for _, percent in noted) > 100
    # A line is drawn whole.
    assert {len(chart.data.rows) % 250 for chart in lines} == {0}


def test_a_map_shows_sizes_spread_over_all(made: list[Page]) -> None:
    chart = next(p for p in part(made, "fusing") if isinstance(p, Chart) and p.name.startswith("crossover"))
    for column in (0, 1):
        sizes = sorted({int(row[column]) for row in chart.data.rows})
        assert len(sizes) == MOST_SIZES and (sizes[0], sizes[-1]) == (1, 50)
        assert max(b - a for a, b in itertools.pairwise(sizes)) <= 5
    shown = len(chart.data.rows)
    assert shown > MOST_SIZES**2 - FAILED
    assert f"{2500 - FAILED - shown} sizes between are not drawn" in chart.about


@pytest.mark.skipif(chromium() is None, reason="no Chromium here (Debian: apt-get install chromium)")
def test_ten_thousand_rows_are_paged_sorted_and_filtered(text: str, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "large.html"
    file.write_text(text, encoding="utf-8")
    records = read_run(run).records
    said, column = "document.getElementById('rows-said').textContent", (
        "Array.from(document.querySelectorAll('#rows-table tbody tr')).map(r => r.cells[Array.from("
        "document.querySelectorAll('#rows-table th')).findIndex(h => h.innerText.startsWith('%s'))].textContent)"
    )  # fmt: skip
    with Browser(tmp_path / "profile") as browser:
        browser.open(file)
        assert (browser.complaints(), browser.requests()) == ([], [])
        assert browser.ask(said) == "Rows 1 to 100 of 10000 (of 10000 in all)"
        browser.ask("document.getElementById('rows-after').click()")
        assert browser.ask(said) == "Rows 101 to 200 of 10000 (of 10000 in all)"
        assert browser.ask(column % "cell_id") == [record.cell_id for record in records[100:200]]
        press = "Array.from(document.querySelectorAll('#rows-table th button')).find(b => b.innerText === '%s').click()"
        browser.ask(press % "time (us)")
        medians = sorted(sum(sorted(r.samples_us)[4:6]) / 2 for r in records if r.samples_us)
        shown = [float(time) for time in browser.ask(column % "time")]
        assert shown == pytest.approx(medians[:100], rel=1e-5)
        choose = (
            "(() => { const s = document.getElementById('rows-status'); s.value = '%s'; "
            "s.dispatchEvent(new Event('change')); return Array.from(s.options).map(o => o.value); })()"
        )
        assert set(browser.ask(choose % "out_of_memory")) == {"", "ok", "out_of_memory"}
        assert browser.ask(said) == f"Rows 1 to {FAILED} of {FAILED} (of 10000 in all)"
        assert set(browser.ask(column % "status")) == {"out_of_memory"}
        assert browser.ask("document.getElementById('rows-after').disabled")


def test_every_row_is_in_the_page_once(made: list[Page]) -> None:
    rows = next(p for p in part(made, "all-rows") if isinstance(p, AllRows))
    ids = [row[rows.columns.index("cell_id")] for row in rows.rows]
    assert len(ids) == len(set(ids)) == 10_000
