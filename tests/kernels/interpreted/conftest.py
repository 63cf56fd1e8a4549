"""Tests that launch Triton kernels: in the interpreter on CPU tensors, or on a GPU.

Triton reads TRITON_INTERPRET when a kernel is defined, so these tests need a process of their own:
tests/kernels/test_interpreted.py starts one for each file here. Where there is a GPU and no interpreter, they
run in the ordinary process too, on the GPU, with the mark gpu. Outputs are poisoned: torch fills what it
allocates with NaN.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
RUNS_HERE = INTERPRETED or torch.cuda.is_available()
# Compiling for a GPU takes up to half a minute a kernel (float32, backward), and some tests need forty of them.
TIMEOUT_ON_A_GPU_S = 1500
if not INTERPRETED:  # what cuBLAS asks of a process that wants torch's deterministic algorithms; read at its start
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

Block = tuple[int, int, int]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return None if RUNS_HERE else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not INTERPRETED:
            item.add_marker("gpu")
            item.add_marker(pytest.mark.timeout(TIMEOUT_ON_A_GPU_S))


@pytest.fixture(scope="session")
def device() -> str:
    """Where the kernels run: "cpu" in the interpreter, else "cuda"."""
    return "cpu" if INTERPRETED else "cuda"


@pytest.fixture(autouse=True)
def poisoned_allocations() -> Iterator[None]:
    """What a kernel does not write is NaN."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(autouse=True)
def plain_attention_of_torch() -> Iterator[None]:
    """torch's own attention, with which ours is compared, is its plain one, with float32 in between: the most exact
    that it has, and the same on every machine. Left to itself it chooses by GPU, version and shape, and some of
    what it chooses answers NaN for a query that sees no key, beside which anything would pass."""
    with sdpa_kernel(SDPBackend.MATH):
        yield


@pytest.fixture
def room_for(device: str) -> Callable[[int], None]:
    """Skips the test where so many bytes can't be had. On a CPU they needn't be free, only promised: pages that
    nobody writes to don't exist."""

    def check(size_bytes: int) -> None:
        if device == "cpu":
            room, what = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"), "of memory"
        else:
            room, what = torch.cuda.mem_get_info()[0], "of free GPU memory"
        if room < size_bytes:
            pytest.skip(f"needs {size_bytes / 2**30:.0f} GiB {what}")

    return check


@pytest.fixture
def zeros_far_apart(device: str, room_for: Callable[[int], None]) -> Iterator[Callable[..., Tensor]]:
    """So many zeros, float16 unless said otherwise, billions of them; on a CPU only the pages that are written to
    exist."""

    def make(elements: int, dtype: torch.dtype = torch.float16) -> Tensor:
        if device == "cpu":
            room_for(elements * dtype.itemsize)
            return torch.from_numpy(np.zeros(elements, dtype=np.dtype(str(dtype)[6:])))
        room_for(3 * elements * dtype.itemsize)
        return torch.zeros(elements, dtype=dtype, device=device)

    yield make
    if device != "cpu":
        torch.cuda.empty_cache()


@pytest.fixture
def only_blocks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """only_blocks(choose): from here on each launch in the interpreter runs those blocks alone that `choose` picks of
    its grid, by default the last one: all of them would take hours. What torch allocates is not filled: it may be
    billions of elements. A GPU runs all blocks."""

    def last(grid: Block) -> list[Block]:
        return [(grid[0] - 1, grid[1] - 1, grid[2] - 1)]

    def install(choose: Callable[[Block], Iterable[Block]] = last) -> None:
        monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)
        if not INTERPRETED:
            return
        from triton.runtime import interpreter

        builder, run_all = interpreter.interpreter_builder, interpreter.GridExecutor.__call__

        def run(executor: Any, *arguments: Any, **options: Any) -> None:
            grid = (*executor.grid, 1, 1)[:3]
            for block in choose(grid):
                executor.grid = (1, 1, 1)  # what its loops go over
                monkeypatch.setattr(builder, "set_grid_dim", lambda *_: type(builder).set_grid_dim(builder, *grid))
                monkeypatch.setattr(
                    builder, "set_grid_idx", lambda *_, at=block: type(builder).set_grid_idx(builder, *at)
                )
                run_all(executor, *arguments, **options)

        monkeypatch.setattr(interpreter.GridExecutor, "__call__", run)

    return install
