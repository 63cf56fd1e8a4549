"""Decode and projections compile for GPUs that are not there, without spilling, within their shared memory."""

import itertools
import re
from collections.abc import Iterator
from typing import Any

import pytest

from andrea_bench.inspect.disassembly import listing
from andrea_bench.kernel import TritonLaunch, find_kernel
from andrea_bench.problem import Problem

pytest.importorskip("triton", reason="the package triton is not installed")

from andrea_kernels.flash import decode_tiles  # triton is looked for first
from andrea_kernels.projection import tiles

compile_module = pytest.importorskip("andrea_bench.inspect.compile", reason="the compiler's driver is not there")

# Of one block, in bytes (andrea_bench/hardware/catalogue/arch).
SHARED_MEMORY = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 120: 101376}
KERNELS = {
    "triton_decode": "attention",
    "triton_fused_qkv": "qkv_projection",
    "triton_per_head_projection": "qkv_projection",
    "triton_output_projection": "output_projection",
}
DECODE_PLACES = list(itertools.product((80, 86, 87, 89, 90, 100, 103, 120, 121), range(16, 257, 16), (2, 4)))


def launches(name: str, architecture: int, head_dim: int, dtype: str) -> Iterator[TritonLaunch]:
    problem = Problem(seq_len=1024, n_head=8, head_dim=head_dim, dtype=dtype)
    if name == "triton_decode":
        problem = problem.replace(seq_len=1, kv_len=4096, direction="decode")
    kernel = find_kernel(KERNELS[name], name)
    assert kernel.launches is not None
    yield from kernel.launches(problem, f"{architecture // 10}.{architecture % 10}")


def compiled(made: TritonLaunch, architecture: int) -> Any:
    request = compile_module.Request(made.function, made.signature, made.constexprs, made.num_warps, made.num_stages,
                                     architecture, made.divisible_by_16)  # fmt: skip
    binary = compile_module.compile_here(request)
    assert binary.shared_memory_bytes <= SHARED_MEMORY[architecture]
    assert set(re.findall(r"(\d+) bytes spill", binary.log)) <= {"0"}
    return binary


@pytest.mark.parametrize("architecture", SHARED_MEMORY)
@pytest.mark.parametrize("name", KERNELS)
def test_compiles_with_wide_loads_and_without_spills(name: str, architecture: int) -> None:
    for made in launches(name, architecture, 72, "bfloat16"):
        binary = compiled(made, architecture)
        if made.part == "reduce":
            continue
        code = listing(binary.cubin)
        copies = set(re.findall(r"LDGSTS\S*", code))
        assert any(".128" in copy for copy in copies)
        # The part of a head that is 16 wide may load 8 bytes a thread; nothing loads 2.
        assert not re.search(r"LDG\S*\.U16", code)
        instruction = {90: "HGMMA", 100: "UTCHMMA"}.get(architecture, "HMMA")
        if name == "triton_decode":  # too few rows for a warpgroup
            instruction = "HMMA"
        assert instruction in code


@pytest.mark.parametrize(
    ("name", "architecture", "head_dim", "dtype"),
    [
        ("triton_per_head_projection", 80, 256, "float32"),
        ("triton_per_head_projection", 90, 256, "tf32"),
        ("triton_fused_qkv", 86, 64, "float32"),
        ("triton_output_projection", 100, 64, "tf32"),
        ("triton_decode", 120, 256, "tf32"),
    ],
)
def test_float32_compiles_without_spills(name: str, architecture: int, head_dim: int, dtype: str) -> None:
    binary = compiled(next(launches(name, architecture, head_dim, dtype)), architecture)
    # Exact products have no matrix instruction.
    assert bool(re.search(r"\b(HMMA|HGMMA|UTC\w*MMA)\b", listing(binary.cubin))) == (dtype == "tf32")


def test_a_gpu_between_two_rows_takes_the_lower_ones_tile() -> None:
    (like_89,) = launches("triton_fused_qkv", 89, 64, "float16")
    (like_86,) = launches("triton_fused_qkv", 86, 64, "float16")
    assert like_89 == like_86


def test_tf32_only_where_the_problem_says_so() -> None:
    for name in KERNELS:
        for dtype, precision in (("float32", "ieee"), ("tf32", "tf32"), ("bfloat16", "ieee")):
            first = next(launches(name, 90, 64, dtype))
            assert first.constexprs["PRECISION"] == precision


@pytest.mark.parametrize("name", ["triton_fused_qkv", "triton_output_projection"])
@pytest.mark.parametrize(("dtype", "kind"), [("bfloat16", "16bit"), ("tf32", "tf32"), ("float32", "ieee")])
def test_a_search_tries_tiles_and_leaves_the_table_as_it_was(name: str, dtype: str, kind: str) -> None:
    kernel = find_kernel(KERNELS[name], name)
    problem = Problem(seq_len=1024, n_head=8, head_dim=64, dtype=dtype)  # type: ignore[arg-type]
    assert kernel.candidates is not None
    before = list(launches(name, 90, 64, dtype))
    candidates = kernel.candidates(problem, "9.0")
    seen = set()
    for candidate in candidates:
        with candidate.use():
            (made,) = launches(name, 90, 64, dtype)
        tile = (*made.tile.values(), made.num_warps, made.num_stages)
        assert candidate.row == f'"{kind}": Tile({", ".join(map(str, tile))}),  # of 90'
        seen.add(tile)
    assert len(seen) == len(candidates) >= 6
    assert list(launches(name, 90, 64, dtype)) == before
    # Those that the table has are among them, and those larger than the problem are not.
    assert all(tuple(rows[kind]) in seen for rows in tiles.TILES.values())
    few = kernel.candidates(problem.replace(seq_len=64), "9.0")
    assert 0 < len(few) < len(candidates)
    assert kernel.candidates(problem.replace(direction="backward"), "9.0") == []


def test_a_row_of_an_architecture_that_is_not_there_can_be_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = find_kernel("qkv_projection", "triton_fused_qkv").candidates
    problem = Problem(seq_len=1024, n_head=8, head_dim=64, dtype="bfloat16")
    printed = candidates(problem, "10.3")[0].row  # type: ignore[misc]
    before = {(a, kind): tiles.tile_for(a, kind, 4096) for a in (100, 103, 120, 121) for kind in tiles.TILES[80]}
    pasted = eval(f"{{{printed}\n}}", {"Tile": tiles.Tile})
    monkeypatch.setattr(tiles, "TILES", tiles.TILES | pasted)
    changed = [place for place, was in before.items() if tiles.tile_for(*place, 4096) != was]
    assert changed == [(103, "16bit")]
    assert tiles.tile_for(103, "16bit", 4096) == pasted[103]["16bit"]


@pytest.mark.parametrize("architecture", [80, 86, 89, 100, 103, 121])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_search_for_decode_tries_tiles_and_its_rows_can_be_pasted(
    architecture: int, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = find_kernel("attention", "triton_decode")
    problem = Problem(seq_len=1, kv_len=4096, n_head=8, head_dim=72, dtype=dtype, direction="decode")  # type: ignore[arg-type]
    before = {place: decode_tiles.tile(*place) for place in DECODE_PLACES}
    printed = kernel.candidates(problem, f"{architecture // 10}.{architecture % 10}")  # type: ignore[misc]
    seen = set()
    for candidate in printed:
        with candidate.use():
            made = next(launches("triton_decode", architecture, 72, dtype))
        pasted = eval(f"{{{candidate.row}\n}}", {"Tile": decode_tiles.Tile})
        assert list(pasted) == [candidate.key]
        tile = pasted[candidate.key]
        assert (tile.block_n, tile.warps, tile.stages) == (made.tile["block_n"], made.num_warps, made.num_stages)
        assert candidate.part == made.part
        seen.add(tile)
    assert len(seen) == len(printed) >= 12
    assert before[architecture, 80, 2 if dtype == "bfloat16" else 4] in seen
    monkeypatch.setattr(decode_tiles, "TABLE", decode_tiles.TABLE | pasted)
    assert decode_tiles.tile(*candidate.key) == tile
    for (a, width, element_bytes), was in before.items():
        if a < architecture or width > 80 or element_bytes != candidate.key[2]:
            assert decode_tiles.tile(a, width, element_bytes) == was


def test_the_heads_are_checked_before_they_are_measured() -> None:
    torch = pytest.importorskip("torch", reason="the package torch is not installed")
    problem = Problem(seq_len=3, n_head=2, head_dim=8)
    inputs = {"heads": torch.zeros(1, 2, 3, 8), "w_o": torch.zeros(8, 16)}
    with pytest.raises(ValueError, match="heads must be on a CUDA device, not on cpu"):
        find_kernel("output_projection", "triton_output_projection").prepare(problem, inputs)
