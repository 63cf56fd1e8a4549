"""The script that measures on an H200: as a dry run (the interpreter, one tiny size), and the kernels it names."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from andrea_bench.kernel import find_kernel, kernels
from andrea_bench.store import read_run

SCRIPT = Path(__file__).parents[2] / "reports" / "measure_h200.sh"
# Names with commas between, as the script has them: in place of KERNELS, in the dry run, in what is compiled first.
NAMES = r"[a-z]\w*(?:,[a-z]\w*)+"
LISTS = re.compile(rf"\bkernels=(?:\$\{{KERNELS:-)?({NAMES})|/\$head_dim\" ({NAMES})")


def test_the_script_for_an_h200_runs_dry(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="the package triton is not installed")
    command = Path(sys.executable).parent / "andrea-bench"
    environment = os.environ | {"DRY_RUN": "1", "ANDREA_BENCH": str(command), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["sh", SCRIPT, tmp_path], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    records = read_run(tmp_path / "seq_len_16").records
    assert {r.kernel for r in records if r.status == "ok"} >= {"triton_exact", "triton_padded", "sdpa_math"}
    assert {r.problem.direction for r in records} == {"forward", "backward"}


def test_the_script_names_kernels_that_there_are_and_every_backend_of_torch() -> None:
    measured, dry, compiled = ((a or b).split(",") for a, b in LISTS.findall(SCRIPT.read_text()))
    for name in (*measured, *dry, *compiled):
        assert find_kernel("attention", name).name == name
    backends = {k.name for k in kernels() if k.op == "attention" and k.name.startswith("sdpa_")}
    assert {"sdpa_math", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn"} <= backends
    assert set(measured) >= backends | {"flex", "triton_exact", "triton_padded"}
    assert set(compiled) == {name for name in measured if name.startswith("triton")}
