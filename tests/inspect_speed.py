"""How fast `inspect` is, cold and with its results kept. Prints a table; not a test, since it times.

    python tests/inspect_speed.py [HEAD_DIMS]        # default: 16:128:8

Two attention kernels are compiled for four GPUs at each head_dim, GPU by GPU, into a fresh cache folder (by default
120 kernels, some minutes), and then all are asked for again. CPU time is that of all processes, the assembler's and
the disassembler's too.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

GPUS = ("rtx_4090", "a100_sxm4_80gb", "h200_sxm", "b200")
KERNELS = "triton_exact,triton_padded"


def inspect(gpus: str, head_dims: str, cache: str) -> tuple[int, float, float]:
    """Kernels compiled or kept, wall seconds, CPU seconds of one `inspect` call."""
    command = [sys.executable, "-m", "andrea_bench", "inspect", "--json", "--gpu", gpus, "--kernel", KERNELS,
               "-a", f"head_dim={head_dims}"]  # fmt: skip
    with tempfile.TemporaryFile() as out:
        started = time.perf_counter()
        process = subprocess.Popen(
            command, stdout=out, stderr=subprocess.DEVNULL, env={**os.environ, "ANDREA_BENCH_CACHE": cache}
        )
        _, status, used = os.wait4(process.pid, 0)
        wall_s = time.perf_counter() - started
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"inspect ended with {process.returncode}")
        out.seek(0)
        facts = json.load(out)["facts"]
    return sum(one["status"] == "ok" for one in facts), wall_s, used.ru_utime + used.ru_stime


def main() -> None:
    head_dims = sys.argv[1] if len(sys.argv) > 1 else "16:128:8"
    print(f"{KERNELS} at head_dim {head_dims}, {len(os.sched_getaffinity(0))} CPUs")
    print(f"{'':<21} {'kernels':>7} {'wall s':>7} {'CPU s':>7} {'a CPU s':>8}")
    with tempfile.TemporaryDirectory() as cache:
        calls = [*((f"cold, {gpu}", gpu) for gpu in GPUS), ("all, kept", ",".join(GPUS))]
        for name, gpus in calls:
            kernels, wall_s, cpu_s = inspect(gpus, head_dims, cache)
            print(f"{name:<21} {kernels:>7} {wall_s:>7.1f} {cpu_s:>7.1f} {kernels / cpu_s:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
