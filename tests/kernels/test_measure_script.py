"""The script that measures on an H200, as a dry run: the interpreter, one tiny size."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from andrea_bench.store import read_run

SCRIPT = Path(__file__).parents[2] / "reports" / "measure_h200.sh"


def test_the_script_for_an_h200_runs_dry(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    command = Path(sys.executable).parent / "andrea-bench"
    environment = os.environ | {"DRY_RUN": "1", "ANDREA_BENCH": str(command), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["sh", SCRIPT, tmp_path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    records = read_run(tmp_path / "seq_len_16").records
    assert {r.kernel for r in records if r.status == "ok"} >= {"triton_exact", "triton_padded", "sdpa_math"}
    assert {r.problem.direction for r in records} == {"forward", "backward"}
