"""The same Watch on a real GPU. ANDREA_BENCH_RECORD=FILE keeps what it saw, labelled with GPU and driver, as a
fixture for machines without one."""

import json
import os
import time
from pathlib import Path

import pytest

from andrea_bench.environment import environment
from andrea_bench.hardware.nvml import Nvml
from andrea_bench.measure.counters import Watch
from andrea_bench.measure.energy import measure_energy

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU that torch can use"),
]


@pytest.fixture
def work():
    matrix = torch.randn(4096, 4096, device="cuda", dtype=torch.float16)
    return lambda: matrix @ matrix


@pytest.fixture
def uuid():
    return str(torch.cuda.get_device_properties(0).uuid)


def test_a_busy_gpu(work, uuid):
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        work()
        torch.cuda.synchronize()
    watch = Watch("cuda:0", gpu_uuid=uuid)
    watch.before()
    until = time.monotonic() + 2.0
    while time.monotonic() < until:
        work()
        torch.cuda.synchronize()
    seen = watch.after()
    read = seen.counters
    json.dumps(read, allow_nan=False)
    if "ANDREA_BENCH_RECORD" in os.environ:
        about = environment("cuda:0", gpu_uuid=uuid)
        label = {"gpu": about["gpu"], "driver_version": about.get("driver_version"), "counters": read}
        Path(os.environ["ANDREA_BENCH_RECORD"]).write_text(json.dumps(label, indent=1, allow_nan=False) + "\n")
    assert uuid in read["gpu_uuid"]
    assert 0 < read["gpu_sm_clock_mhz"] <= 1.1 * read["gpu_max_sm_clock_mhz"]
    assert read["gpu_lost"] is False
    assert read["gpu_samples"] > 5
    assert seen.validity(True).verdict in ("valid", "suspect", "invalid")


def test_energy_of_a_real_call(work, uuid):
    found = measure_energy(Nvml().find(uuid), work, torch.cuda.synchronize, window_s=2.0, calls_per_batch=20)
    if found.reason:
        pytest.skip(f"this GPU gives no energy: {found.reason}")
    assert found.joules_per_call > 0
    assert 1 < found.average_watts < 3000
