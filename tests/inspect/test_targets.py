"""Targets that are not there, that the compiler can't serve, or that are too small: cases C12, C13, KC11, KC12 and
their kind, over the whole catalogue."""

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("triton", reason="the package triton is not installed")

from sample_kernels import sample_copy
from test_units import tile

from andrea_bench.errors import BadInput
from andrea_bench.hardware import architectures, find_gpu, gpus
from andrea_bench.inspect import targets
from andrea_bench.inspect.facts import HEAD, Facts, make_facts
from andrea_bench.inspect.survey import user_launch

NAMES = [*gpus(), *(architecture.target for architecture in architectures().values())]
# Opens a process in which the active driver can't be asked for, nor torch be imported.
TRAPS = """
import sys
sys.modules["torch"] = None
from triton.runtime import driver
type(driver).active = property(lambda self: sys.exit("asked the driver"))
"""


def in_a_trap(script: str, cache: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "ANDREA_BENCH_CACHE": str(cache), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", TRAPS + script]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_verb_asks_no_driver_and_prints_no_figure_of_a_gpu(tmp_path: Path) -> None:
    done = in_a_trap(
        "from andrea_bench.cli.main import main\n"
        "code = main(['inspect', '--gpu', 'sm_90,sm_86,sm_121a,sm_70', '-a', 'dtype=bfloat16', '-a', 'head_dim=128',\n"
        "             '--kernel', 'triton_exact'])\n"
        "assert 'libcuda' not in open('/proc/self/maps').read()\n"
        "sys.exit(code)\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "2 compiled (0 kept), 2 unsupported" in done.stderr
    said = " ".join(done.stdout.split())
    assert "triton_exact on sm_90 (9.0)" in said and "triton_exact on sm_86 (8.6)" in said
    assert "sm_121a: unsupported: unknown target sm_121a; known: sm_80" in said
    assert "sm_70: unsupported: bfloat16 needs compute capability 8.0" in said
    # Nothing ran, so nothing has a time or a rate.
    assert not re.search(r"\d (us|ms|s|[GT]FLOP/s|[GT]B/s)\b", said)
    assert "compiled, not measured" in said


def test_no_kernel_of_the_project_asks_a_driver_how_it_is_launched(tmp_path: Path) -> None:
    done = in_a_trap(
        "from andrea_bench import Problem\n"
        "from andrea_bench.errors import Unsupported\n"
        "from andrea_bench.inspect import targets\n"
        "from andrea_bench.hardware import gpus\n"
        "from andrea_bench.kernel import kernels\n"
        "told = set()\n"
        "for kernel in (k for k in kernels() if k.launches):\n"
        "    for direction in kernel.directions:\n"
        "        for head_dim in (64, 72, 256):\n"
        "            problem = Problem(n_head=12, head_dim=head_dim, dtype='bfloat16', direction=direction,\n"
        "                              seq_len=1 if direction == 'decode' else 1024, kv_len=1024)\n"
        "            for gpu in gpus().values():\n"
        "                if targets.uninspectable(gpu, 'bfloat16') or kernel.unsupported_problem(problem, 'cuda'):\n"
        "                    continue\n"
        "                try:\n"
        "                    if kernel.launches(problem, gpu.compute_capability):\n"
        "                        told.add(kernel.name)\n"
        "                except Unsupported:\n"
        "                    pass\n"
        "assert told == {k.name for k in kernels() if k.launches} and len(told) > 6, told\n"
        "assert 'libcuda' not in open('/proc/self/maps').read()\n",
        tmp_path,
    )
    assert done.returncode == 0, done.stderr


def facts_of(name: str, *, shared_memory_bytes: int = 0, tensor_memory_columns: int = 0) -> Facts:
    """Facts for `name` of a binary that asks for so much, compiled or not."""
    gpu = find_gpu(name)
    binary = tile(64)
    asked = msgspec.structs.replace(
        binary, resources=msgspec.structs.replace(binary.resources, registers_per_thread=32),
        shared_memory_bytes=shared_memory_bytes, tensor_memory_columns=tensor_memory_columns,
    )  # fmt: skip
    launch = user_launch(sample_copy, "*fp32,*fp32,i32", {"block": 256}, 4, 1, None, None, 0)
    head = {"kernel": "k", "gpu": name, "compute_capability": gpu.compute_capability, "problem": None}
    return make_facts({**head, "direction": "forward"}, asked, launch, gpu, cached=False)


@pytest.mark.parametrize("name", NAMES)
def test_the_limit_of_shared_memory_is_the_catalogues_to_the_byte(name: str) -> None:
    limit = find_gpu(name).architecture.shared_memory_per_block_bytes
    fits, too_much = (facts_of(name, shared_memory_bytes=limit + more) for more in (0, 1))
    assert (fits.status, fits.blocks_per_sm) == ("ok", 1)
    assert too_much.status == "unsupported" and set(too_much.document()) == set(HEAD)
    reason = too_much.reason or ""
    assert f"needs {limit + 1} bytes of on-chip shared memory per block" in reason
    assert f"allows {limit} by our catalogue" in reason and name in reason
    assert "smaller tiles or fewer stages need less" in reason
    assert "VRAM" not in reason and "\n" not in reason


def test_limits_that_are_published() -> None:
    """By hand, of the cases' targets: what one block may have."""
    limits = {"sm_75": 64 * 1024, "sm_80": 163 * 1024, "sm_86": 99 * 1024, "sm_89": 99 * 1024, "sm_90": 227 * 1024}
    assert {name: find_gpu(name).architecture.shared_memory_per_block_bytes for name in limits} == limits


def test_tensor_memory_beyond_the_limit_is_a_row() -> None:
    assert facts_of("b200", tensor_memory_columns=512).status == "ok"
    refused = facts_of("b200", tensor_memory_columns=1024)
    assert refused.status == "unsupported" and "1024 columns of tensor memory" in (refused.reason or "")
    assert "smaller tiles" in (refused.reason or "")


@pytest.mark.parametrize("name", NAMES)
def test_each_dtype_on_each_target_has_its_answer(name: str) -> None:
    gpu = find_gpu(name)
    capability = float(gpu.compute_capability)
    for dtype in ("float32", "tf32", "float16", "bfloat16"):
        reason = targets.uninspectable(gpu, dtype)
        if dtype == "bfloat16" and capability < 8:
            assert reason and reason.startswith("bfloat16 needs compute capability 8.0 (sm_80) or newer")
        elif capability < 8:
            assert reason and gpu.compute_capability in reason
        else:
            assert reason is None


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("90", "sm_90"), ("sm90", "sm_90"), ("SM_90", "sm_90"), ("9.0", "sm_90"), ("sm_9", "sm_90"), ("sm_", "sm_90"),
        ("compute_90", "sm_90"), ("sm_90x", "sm_90"), ("gfx942", "AMD"), ("gfx90a", "AMD"), ("hip", "AMD"),
        ("", "known:"), ("RTX 4090", "rtx_4090"), ("rtx_4900", "rtx_4090"),
    ],
)  # fmt: skip
def test_a_spelling_that_is_not_known_is_a_usage_error(name: str, says: str) -> None:
    with pytest.raises(BadInput, match=re.escape(says)):
        targets.find_target(name)


@pytest.mark.parametrize(("name", "found"), [("sm_90", "sm_90"), ("sm_90a", "sm_90"), ("sm_100a", "sm_100")])
def test_a_target_is_found_with_its_suffix(name: str, found: str) -> None:
    gpu = targets.find_target(name)
    assert not isinstance(gpu, str) and gpu.name == found


@pytest.mark.parametrize("name", ["sm_999", "sm_121a", "sm_110", "sm_103f"])
def test_a_target_that_nothing_here_knows_is_a_row(name: str) -> None:
    said = targets.find_target(name)
    assert isinstance(said, str) and said.startswith(f"unknown target {name}; known: sm_80, sm_86, sm_89, sm_90")
