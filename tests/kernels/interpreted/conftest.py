"""Tests that launch Triton kernels: in the interpreter on CPU tensors, or on a GPU.

Triton reads TRITON_INTERPRET when a kernel is defined, so these tests need a process of their own:
tests/kernels/test_interpreted.py starts one for each file here. Where there is a GPU and no interpreter, they
run in the ordinary process too, on the GPU, with the mark gpu. Outputs are poisoned: torch fills what it
allocates with NaN.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

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
def zeros_far_apart(device: str) -> Iterator[Callable[[int], Tensor]]:
    """So many float16 zeros, billions of them; on a CPU only the pages that are written to exist."""

    def make(elements: int) -> Tensor:
        if device == "cpu":
            return torch.from_numpy(np.zeros(elements, dtype=np.float16))
        if torch.cuda.mem_get_info()[0] < 3 * 2 * elements:
            pytest.skip(f"needs {6 * elements / 2**30:.0f} GiB of free GPU memory")
        return torch.zeros(elements, dtype=torch.float16, device=device)

    yield make
    if device != "cpu":
        torch.cuda.empty_cache()
