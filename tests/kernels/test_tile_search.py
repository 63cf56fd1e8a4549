"""The search that the tile table's rows come from."""

import os

import pytest
import tile_rows

from andrea_bench.inspect.tile_search import WITHIN, Tried, _ranked


def tried(row: str, bound: float | None, *, spill: int = 0, warps: int = 8, area: int = 8192, stages: int = 2) -> Tried:
    return Tried(row=row, part=None, status="ok", reason=None, area=area, stages=stages, bound=bound, spill_bytes=spill,
                 warps_per_sm=warps)  # fmt: skip


def test_spills_drop_out_then_warps_then_area_then_stages_decide() -> None:
    ranked = _ranked(
        [
            tried("does not fit", None),
            tried("spills", 50.0, spill=8),
            tried("too slow", 111.0),
            tried("few warps", 100.0, warps=4),
            tried("small", 109.0, area=4096),
            tried("shallow", 109.0, warps=16),  # no better than 8 warps
            tried("best", 109.0, stages=3),
        ]
    )
    assert [t.row for t in ranked] == [
        "best", "shallow", "small", "few warps", "too slow", "spills", "does not fit"
    ]  # fmt: skip


def test_where_all_spill_the_least_is_taken() -> None:
    assert [t.row for t in _ranked([tried("a", 10.0, spill=64), tried("b", 90.0, spill=8)])] == ["b", "a"]


# Compiling every row takes half an hour, so `make test` looks at three, and with TILE_ROWS=all, or TILE_ROWS=80,100 for
# the rows of some architectures, at more. `python tests/kernels/tile_rows.py` prints them.
QUICK = [(80, 32), (89, 128), (120, 48)]
ASKED = os.environ.get("TILE_ROWS", "")


def rows_to_test() -> list[tuple[int, int]]:
    if not ASKED:
        return QUICK
    return [row for row in tile_rows.FORWARD_ROWS if ASKED == "all" or str(row[0]) in ASKED.split(",")]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("architecture", "width"), rows_to_test())
def test_the_table_s_tile_is_within_ten_percent_of_the_best(architecture: int, width: int) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    chosen = tile_rows.tiles.TABLE[architecture, width, "forward"]
    row = tile_rows.row_beside_search(architecture, width, stages=None if ASKED else chosen.stages)
    assert row.bound is not None
    if width <= 128:
        assert row.spill_bytes == 0, row
    if architecture not in tile_rows.MEASURED:
        assert row.bound <= WITHIN * row.least, row


def test_the_rows_that_are_tested_quickly_are_in_the_table() -> None:
    assert set(QUICK) <= set(tile_rows.FORWARD_ROWS)
    assert {architecture for architecture, _ in tile_rows.FORWARD_ROWS} == set(tile_rows.GPUS)
