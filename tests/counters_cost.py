"""What the counters cost of a sweep's time on this machine: run me, I print (no test: timings assert nothing).

    python tests/counters_cost.py

A Group is watched once around its samples, which take up to `time_limit_s` of the Protocol and, for the
quickest kernels, some tenths of a second; the counters' cost is set against both.
"""

import time

from andrea_bench.measure.counters import Watch
from andrea_bench.protocol import Protocol

REPEATS = 200


def watch_group() -> None:
    """As the measuring process does it: a Watch for each Group."""
    watch = Watch("cpu")
    watch.before()
    watch.after().validity(converged=True, drift=0.0)


def main() -> None:
    started = time.perf_counter()
    watch_group()
    first_s = time.perf_counter() - started
    started = time.perf_counter()
    for _ in range(REPEATS):
        watch_group()
    group_s = (time.perf_counter() - started) / REPEATS
    print(f"watching a process's first Group costs {first_s * 1e3:.2f} ms, each other {group_s * 1e3:.2f} ms")
    for name, seconds in (("its time limit", Protocol().time_limit_s), ("a fifth of a second", 0.2)):
        share = group_s / seconds
        print(f"of a Group that takes {name} ({seconds:g} s): {share:.3%} {'(below 1 %)' if share < 0.01 else ''}")


if __name__ == "__main__":
    main()
