"""Runs tests/kernels/interpreted in processes in which Triton interprets kernels, on CPU tensors."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "interpreted"


# The interpreter is slow, and slower on a machine that is busy with other things.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("file", sorted(path.name for path in FOLDER.glob("test_*.py")))
def test_kernels_in_the_interpreter(file: str) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(FOLDER / file)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
