"""An HTML file of more rows than it can hold: it stays small, and says how many rows it hides and where all are."""

from pathlib import Path

import pytest
from test_rows import make

from andrea_bench.record import RunHead
from andrea_bench.report.content import AllRows, MeasuredRun, Page, Subject
from andrea_bench.report.html import html
from andrea_bench.report.markdown import markdown
from andrea_bench.report.pages import rows as module
from andrea_bench.report.rows import group_rows
from andrea_bench.report.subject import read_runs

RUN = Path(__file__).parents[1] / "fixtures" / "run_fake"
MOST_BYTES = 5_000_000


def subject_of(count: int) -> Subject:
    """A Run of so many rows of 30 samples each."""
    samples = [1000.0 + 7 * (n * n % 31) for n in range(30)]
    records = [
        make("attention", "attention", "sdpa", [us + number for us in samples], cell_id=f"{number:016x}")
        for number in range(count)
    ]
    head = RunHead(started_at="2026-01-02T03:04:05.678+00:00", complete=True)
    return Subject([MeasuredRun("large", head, group_rows(records), [], [])], None, "andrea-bench report large", None)


def table(page: Page) -> AllRows:
    return next(part for part in page.parts if isinstance(part, AllRows))


@pytest.mark.parametrize("most", [10, 1])
def test_rows_beyond_the_most_are_counted_and_said(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    subject = Subject(read_runs([RUN], lambda head: None), None, "andrea-bench report run_fake")
    every = sum(1 for run in subject.runs for _ in run.rows())
    assert len(table(module.all_rows(subject)).rows) == every > 20
    monkeypatch.setattr(module, "MOST_ROWS", most)
    page = module.all_rows(subject)
    assert len(table(page).rows) == len(table(page).shapes) == most
    said = f"{every - most} of {every} rows are hidden"
    assert said in html([page], "x") and said in markdown([page], "x", {})


def test_the_most_rows_fit_and_none_is_hidden_before() -> None:
    page = module.all_rows(subject_of(module.MOST_ROWS))
    assert len(table(page).rows) == module.MOST_ROWS == 15_000
    assert not [part for part in page.parts if isinstance(part, str)]
    text = html([page], "x")
    assert f'"count":{module.MOST_ROWS}' in text
    assert len(text.encode()) < MOST_BYTES


def test_one_more_is_hidden_and_the_file_stays_small() -> None:
    page = module.all_rows(subject_of(module.MOST_ROWS + 1))
    assert len(table(page).rows) == module.MOST_ROWS
    assert "1 of 15001 rows are hidden; `report --csv` writes all." in page.parts
    assert len(html([page], "x").encode()) < MOST_BYTES
