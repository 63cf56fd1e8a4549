"""Maps mark what rests on times in doubt, and their tables say why."""

from pathlib import Path
from typing import Any

import pytest
from made_up import changed_run
from page_parts import charts, marks, page

MEANING = "! marks a time in doubt"


@pytest.mark.parametrize(
    ("name", "drawn", "axis", "field", "value", "column"),
    [("splits", "splits", "y", "n_head", 2, 0), ("fusing", "crossover", "x", "seq_len", 32, 1)],
)
def test_a_cell_that_rests_on_a_time_in_doubt_is_marked(
    name: str, drawn: str, axis: str, field: str, value: int, column: int, tmp_path: Path
) -> None:
    def change(record: dict[str, Any]) -> None:
        suspect = record["problem"][field] == value and record["kernel"] != "per_head_loop"
        record["validity"] = {"verdict": "suspect", "reasons": ["it drifted"]} if suspect else {"verdict": "valid"}

    run = changed_run(tmp_path / "run", change, suites=("attention", "projection"))
    maps = [chart for chart in charts(page(name, run)) if chart.name.startswith(drawn)]
    seen = set()
    for chart in maps:
        cells = marks(chart, "rect")
        marked = {str(cell[axis]) for cell in cells if " !" in cell["text"]}
        assert marked == {row[column] for row in chart.data.rows if any("suspect: it drifted" in part for part in row)}
        assert all("it drifted" in cell["about"] for cell in cells if " !" in cell["text"])
        assert (MEANING in chart.about) == bool(marked)
        assert marked < {str(cell[axis]) for cell in cells}
        seen |= marked
    assert seen == {str(value)}
