"""The project's own kernels are predicted with the tiles that they launch, and that without triton."""

import subprocess
import sys

import pytest
from andrea_kernels.flash import tiles

from andrea_bench.errors import Unsupported
from andrea_bench.hardware import gpus
from andrea_bench.kernel import find_kernel
from andrea_bench.predict import cell
from andrea_bench.predict.families import TILED
from andrea_bench.problem import Problem

OWN = [name for name, family in TILED.items() if family.kernel]
CAPABILITIES = sorted({gpu.compute_capability for gpu in gpus().values() if float(gpu.compute_capability) >= 8})


def problem(head_dim: int, **changes: object) -> Problem:
    return Problem(
        **{"batch": 2, "seq_len": 1024, "n_head": 4, "head_dim": head_dim, "dtype": "bfloat16"} | changes  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("direction", ["forward", "backward"])
@pytest.mark.parametrize("name", OWN)
def test_blocks_are_those_of_the_launches(name: str, direction: str) -> None:
    pytest.importorskip("triton", reason="launches are made with triton")
    kernel = find_kernel("attention", name)
    assert kernel.launches is not None and kernel.blocks is not None
    if direction not in kernel.directions:
        return
    for capability in CAPABILITIES:
        for head_dim, dtype in ((32, "bfloat16"), (72, "float16"), (104, "bfloat16"), (192, "tf32"), (256, "float32")):
            asked = problem(head_dim, dtype=dtype, direction=direction)
            launched = {
                one.part or "forward": (one.tile["block_m"], one.tile["block_n"], one.num_warps)
                for one in kernel.launches(asked, capability)
                if one.useful_mma_flops
            }
            told = {}
            for block in kernel.blocks(asked, capability):
                sides = (block.columns, block.rows) if block.part == "dkv" else (block.rows, block.columns)
                told[block.part] = (*sides, block.warps)
            assert told == launched


def test_a_changed_tile_changes_what_is_predicted() -> None:
    full = problem(128, batch=66, causal=False)
    before, cited = (
        cell("h200_sxm", full, op="attention", kernel=name) for name in ("triton_exact", "triton_tutorial")
    )
    with tiles.trying("forward", tiles.Tile(64, 32, 4, 2)):
        after = cell("h200_sxm", full, op="attention", kernel="triton_exact")
        assert cell("h200_sxm", full, op="attention", kernel="triton_tutorial") == cited
    assert after.tile == (64, 32) and before.tile != (64, 32)
    # With half the rows, K and V are read twice as often.
    assert after.parts_us["l2"] == pytest.approx(before.tile[0] / 64 * before.parts_us["l2"])


def test_backward_is_its_two_launches() -> None:
    forward, backward = (
        cell("h200_sxm", problem(64, causal=False, batch=66, direction=d), op="attention", kernel="triton_exact")
        for d in ("forward", "backward")
    )
    assert (forward.launches, backward.launches) == (1, 2)
    # 3 matrix products for dQ and 4 for dK and dV, against 2; whole waves, so that nothing else differs.
    assert backward.parts_us["tensor"] == pytest.approx(3.5 * forward.parts_us["tensor"])


def test_keys_shared_by_a_group_are_walked_by_all_its_queries() -> None:
    parts = []
    for n_kv_head in (1, 4):
        asked = problem(64, n_kv_head=n_kv_head, batch=66, causal=False, direction="backward")
        parts.append(cell("h200_sxm", asked, op="attention", kernel="triton_exact").parts_us["tensor"])
    assert parts[0] == pytest.approx(parts[1])


def test_older_gpus_are_refused_as_the_kernel_does() -> None:
    with pytest.raises(Unsupported, match=r"compute capability 8\.0 or newer, not 7\.5"):
        cell("t4", problem(64, dtype="float16"), op="attention", kernel="triton_exact")


def test_no_triton_and_no_torch_are_needed() -> None:
    code = (
        "import sys; from andrea_bench.predict import cell; from andrea_bench.problem import Problem;"
        "one = cell('h200_sxm', Problem(n_head=12, head_dim=72, dtype='bfloat16'), op='attention',"
        " kernel='triton_exact'); print(one.computed_width, {'torch', 'triton'} & set(sys.modules))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["80", "set()"]
