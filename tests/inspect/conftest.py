"""A cache of their own for the tests of inspect, and Facts of the sample kernel."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sample_launch import EXACT, POINTERS, TYPES


@pytest.fixture(scope="session", autouse=True)
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the cache: nothing of this machine's is read, and each kernel is compiled once a session."""
    patch = pytest.MonkeyPatch()
    folder = tmp_path_factory.mktemp("kept")
    patch.setenv("ANDREA_BENCH_CACHE", str(folder))
    patch.delenv("TRITON_INTERPRET", raising=False)
    yield folder
    patch.undo()


@pytest.fixture(scope="session")
def sample_facts() -> Any:
    """Call it with a GPU and changes of EXACT (and num_warps): Facts of the sample attention."""
    pytest.importorskip("triton", reason="the package triton is not installed")
    from sample_kernels import sample_attention

    from andrea_bench.inspect import compile_facts

    def of(gpu: str, num_warps: int = 4, grid: tuple[int, ...] | None = (16, 12), **changes: Any) -> Any:
        constants = {**EXACT, **changes}
        return compile_facts(
            sample_attention, gpu=gpu, signature=TYPES, constexprs=constants, num_warps=num_warps, num_stages=2,
            divisible_by_16=POINTERS, grid=grid, useful_mma_flops=2 * 2 * 64 * 32 * constants["head_dim"],
        )  # fmt: skip

    return of
