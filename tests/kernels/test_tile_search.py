"""The search that the tile table's rows come from."""

import pytest

from andrea_bench.inspect.cache import AnalysisCache
from andrea_bench.inspect.survey import Options
from andrea_bench.inspect.tile_search import WITHIN, Tried, _ranked, search
from andrea_bench.kernel import find_kernel
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


@pytest.mark.parametrize(("gpu", "head_dim"), [("l40s", 64), ("h200_sxm", 32)])
def test_the_table_s_tile_is_within_ten_percent_of_the_best(gpu: str, head_dim: int) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    from andrea_kernels.flash.tiles import tile

    problem = Problem(n_head=12, head_dim=head_dim, seq_len=4096, dtype="bfloat16")
    architecture = {"l40s": 89, "h200_sxm": 90}[gpu]
    chosen = tile(architecture, head_dim, "forward")
    found = search(find_kernel("attention", "triton_exact"), problem, gpu, stages=chosen.stages,
                   options=Options(cache=AnalysisCache()))  # fmt: skip
    (row,) = (t for t in found if t.row.endswith(f"{chosen},"))
    clean = [t.bound for t in found if t.bound is not None and t.spill_bytes == 0]
    assert row.spill_bytes == 0
    assert row.bound is not None
    assert row.bound <= WITHIN * min(clean)
