"""The search that the tile table's rows come from."""

import itertools
import os

import pytest
import tile_rows
from andrea_kernels.flash import tiles

from andrea_bench.inspect.tile_search import WITHIN, Tried, _ranked
from andrea_bench.kernel import TritonLaunch, find_kernel
from andrea_bench.problem import Problem


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


# All rows are some 450 kernels to compile, so `make test` looks at four, and with TILE_ROWS=all, or TILE_ROWS=80,100
# for the rows of some architectures, at more. `python tests/kernels/tile_rows.py` prints them. (HEAD_DIMS does the same
# for the head_dims of test_attention_compiled.py.)
QUICK = [(80, 32), (80, 112), (89, 128), (120, 48)]
ASKED = os.environ.get("TILE_ROWS", "")


def rows_to_test() -> list[tuple[int, int]]:
    if not ASKED:
        return QUICK
    return [row for row in tile_rows.FORWARD_ROWS if ASKED == "all" or str(row[0]) in ASKED.split(",")]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("architecture", "width"), rows_to_test())
def test_the_table_s_tile_is_within_ten_percent_of_the_best(architecture: int, width: int) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    chosen = tiles.TABLE[architecture, width, "forward"]

    def keep(launch: TritonLaunch) -> bool:
        # One stage is for the smallest tile alone, where nothing else is clean: all others must be seen to spill.
        return bool(ASKED) or chosen.stages in (1, launch.num_stages)

    row = tile_rows.row_beside_search(architecture, width, keep)
    assert row.bound is not None
    assert row.least is not None
    if width <= 128:
        assert (row.spill_bytes, row.width_spill_bytes) == (0, 0), row
    if architecture not in tile_rows.MEASURED:
        assert row.bound <= WITHIN * row.least, row


def test_the_rows_that_are_tested_quickly_are_in_the_table() -> None:
    assert set(QUICK) <= set(tile_rows.FORWARD_ROWS)
    assert {architecture for architecture, _ in tile_rows.FORWARD_ROWS} == set(tile_rows.GPUS)


def test_every_row_is_one_of_the_tiles_that_a_search_looks_at() -> None:
    for (architecture, width, direction), chosen in tiles.TABLE.items():
        assert chosen in tiles.candidates(direction, architecture), (architecture, width, direction)


def test_a_search_of_the_rows_stays_small() -> None:
    # A row's own at its width, and those that read as it does.
    searched = [1 + len({t._replace(descriptors=False) for t in tiles.candidates("forward", a)})
                for a, _ in tile_rows.FORWARD_ROWS]  # fmt: skip
    assert sum(searched) <= 500


def test_a_row_is_printed_as_one_line_of_a_table() -> None:
    row = tile_rows.Row(80, 112, tiles.Tile(64, 32, 4, 1), 104, 15, (1, 2, 3), 14, 1, 0, 12.5, 10.0, 0, 4)
    cells = [cell.strip() for cell in str(row).strip("|").split("|")]
    assert cells == [
        "8.0", "112", "(64, 32, 4, 1)", "15 tiles of 1, 2, 3 stages at 104, 14 fit", "0 bytes, by 1", "0 bytes",
        "4 bytes", "12.5", "10.0", "1.25", "compiled",
    ]  # fmt: skip
    assert {line.count("|") for line in tile_rows.HEAD.splitlines()} == {len(cells) + 1}


def test_four_warps_spill_where_10_0_has_eight_for_that_reason() -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    eight = tiles.TABLE[100, 192, "forward"]
    with tiles.trying("forward", eight._replace(warps=4)):
        spilled = tile_rows.spilled(tile_rows.facts_of(100, 104))
    assert spilled is not None
    assert spilled > 0
    assert tile_rows.spilled(tile_rows.facts_of(100, 104)) == 0


# ---- rows that --autotune prints ------------------------------------------------------------------------
ARCHITECTURES = (80, 86, 87, 89, 90, 100, 103, 120, 121)
PLACES = list(itertools.product(range(16, 257, 16), tiles.STAGES))


@pytest.mark.parametrize("name", ["triton_exact", "triton_padded"])
def test_every_printed_row_can_be_pasted(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = find_kernel("attention", name)
    before = {(a, *place): tiles.tile(a, *place) for a in ARCHITECTURES for place in PLACES}
    table = dict(tiles.TABLE)
    for architecture, head_dim, direction in itertools.product(
        ARCHITECTURES, (16, 72, 104, 128, 208, 256), ("forward", "backward")
    ):
        problem = Problem(n_head=2, head_dim=head_dim, dtype="bfloat16", direction=direction)  # type: ignore[arg-type]
        printed = kernel.candidates(problem, f"{architecture // 10}.{architecture % 10}")  # type: ignore[misc]
        rows = [eval(f"{{{one.row}\n}}", {"Tile": tiles.Tile}) for one in printed]
        assert [list(row) for row in rows] == [[one.key] for one in printed]
        for part in {one.part for one in printed}:
            pasted = next(row for one, row in zip(printed, rows, strict=True) if one.part == part)
            monkeypatch.setattr(tiles, "TABLE", table | pasted)
            [((at, width, part_direction), chosen)] = pasted.items()
            assert tiles.tile(architecture, width, part_direction) == chosen
            for (a, w, d), was in before.items():
                now = tiles.tile(a, w, d)
                # What lies elsewhere stays: lower architectures, wider rows, other directions.
                if tiles.SAME_AS.get(a, a) < at or w > width or d != part_direction:
                    assert now == was, (pasted, a, w, d)
        monkeypatch.setattr(tiles, "TABLE", table)


def test_a_printed_row_says_what_it_would_serve() -> None:
    chosen = tiles.Tile(64, 64, 4, 2)
    assert tiles.row_for(86, 128, "forward", chosen) == (
        (89, 128, "forward"), '(89, 128, "forward"): Tile(64, 64, 4, 2),  # widths above 112 up to 128'
    )  # fmt: skip
    assert tiles.row_for(103, 64, "dq", chosen)[1] == '(103, 64, "dq"): Tile(64, 64, 4, 2),  # widths up to 64'


@pytest.mark.parametrize("dtype", ["float32", "tf32"])
@pytest.mark.parametrize("name", ["triton_exact", "triton_padded"])
def test_float32_has_no_rows_to_search(name: str, dtype: str) -> None:
    problem = Problem(n_head=2, head_dim=64, dtype=dtype)  # type: ignore[arg-type]
    assert find_kernel("attention", name).candidates(problem, "8.9") == []  # type: ignore[misc]


def test_padded_searches_at_its_own_width() -> None:
    problem = Problem(n_head=2, head_dim=72, dtype="bfloat16")
    exact, padded = (find_kernel("attention", f"triton_{name}").candidates for name in ("exact", "padded"))
    assert [one.key[1] for one in exact(problem, "8.9")[:1] + padded(problem, "8.9")[:1]] == [80, 128]  # type: ignore[misc]
