"""A Group on a real GPU, by events and by replay of a graph."""

import pytest
from test_group import make_task, stub

from andrea_bench.measure.clock import make_clock
from andrea_bench.measure.group import measure_group

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU that torch can use"),
]


@pytest.mark.parametrize("direction", ["forward", "backward", "forward_backward"])
@pytest.mark.parametrize("timing_mode", ["cuda_event", "cuda_graph"])
def test_what_a_replay_gives_is_compared_after_the_samples(timing_mode: str, direction: str) -> None:
    task = make_task(stub("good"), stub("resets_at_launch_only"), timing_mode=timing_mode, cache="warm")
    task.device = task.device_name = "cuda"
    task.problem = task.problem.replace(direction=direction)
    good, resets = measure_group(task, make_clock(timing_mode, "warm", "cuda"))
    assert (good.status, good.reason) == ("ok", None)
    # Gradients don't depend on what its buffer holds.
    replayed = timing_mode == "cuda_graph" and direction == "forward"
    assert resets.status == ("wrong" if replayed else "ok"), resets.reason
    if replayed:
        assert "right before it was timed" in resets.reason
