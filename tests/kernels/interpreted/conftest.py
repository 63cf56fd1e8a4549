"""Tests that launch Triton kernels: in the interpreter on CPU tensors, or on a GPU.

Triton reads TRITON_INTERPRET when a kernel is defined, so these tests need a process of their own:
tests/kernels/test_interpreted.py starts one for each file here. Where there is a GPU and no interpreter, they
run in the ordinary process too, on the GPU, with the mark gpu. Outputs are poisoned: torch fills what it
allocates with NaN.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
RUNS_HERE = INTERPRETED or torch.cuda.is_available()


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    return None if RUNS_HERE else True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents and not INTERPRETED:
            item.add_marker("gpu")


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
