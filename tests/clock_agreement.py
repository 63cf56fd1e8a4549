"""Does our clock agree with torch's own? Prints a table; not a test, since it times.

    python tests/clock_agreement.py

The median of `fused_each` by this project's sampling and by torch.utils.benchmark's blocked_autorange on the same
call, taken in turn in one process, so that drift hits both. They should agree within 5 %.
"""

from andrea_bench.measure.allocator import fix_threads, keep_freed_memory

fix_threads(1)
keep_freed_memory()

import torch  # noqa: E402  # after the threads are fixed
from torch.utils.benchmark import Timer  # noqa: E402

from andrea_bench import Problem  # noqa: E402
from andrea_bench.kernel import find_kernel  # noqa: E402
from andrea_bench.measure.call import Prepared  # noqa: E402
from andrea_bench.measure.clock import HostClock  # noqa: E402
from andrea_bench.measure.inputs import make_inputs  # noqa: E402
from andrea_bench.statistics import median, median_interval  # noqa: E402

TURNS = 7
SAMPLES = 15


def compare(problem: Problem) -> tuple[float, float, tuple[float, float]]:
    """Median microseconds by us and by torch, and the interval of the ratio of turns."""
    kernel = find_kernel("qkv_projection", "fused_each")
    inputs = make_inputs("qkv_projection", problem, device="cpu", seed=1)
    call = Prepared(kernel, problem, inputs, seed=1).call
    clock = HostClock()
    timer = Timer("call()", globals={"call": call}, num_threads=1)
    ours, theirs = [], []
    for _ in range(TURNS):
        ours.append(median([clock.sample(call)[0] for _ in range(SAMPLES)]))
        theirs.append(timer.blocked_autorange(min_run_time=0.2).median * 1e6)
    return median(ours), median(theirs), median_interval([a / b for a, b in zip(ours, theirs, strict=True)])


def main() -> None:
    """Print one line a size."""
    torch.set_num_threads(1)
    print(f"{'problem':48} {'ours':>10} {'torch':>10} {'ratio':>7}  interval of the ratio")
    for seq_len in (64, 256, 1024):
        problem = Problem(d_model=768, n_head=12, seq_len=seq_len)
        ours, theirs, (low, high) = compare(problem)
        print(f"{problem.label():48} {ours:7.0f} us {theirs:7.0f} us {ours / theirs:7.3f}  {low:.3f} to {high:.3f}")


if __name__ == "__main__":
    main()
