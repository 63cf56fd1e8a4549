"""The measuring process: reads Tasks as JSON lines, writes what came of them as JSON lines.

Run as `python -m andrea_bench.measure.worker DEVICE THREADS PULSE_FD`. Messages to the parent, one a line, each an
object with `event`: `ready` (environment facts), `at` (a kernel's check or timing begins), `records`, or `stop`
(a kernel raised SystemExit or KeyboardInterrupt: the whole sweep is to end). What kernels print goes to
stderr. PULSE_FD is a file of eight bytes shared with the parent: a count of calls begun and the index of the
kernel that is at work, so that the parent sees who hangs without a system call between samples.
"""

import ctypes
import gc
import mmap
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

import msgspec

from andrea_bench.measure.allocator import fix_threads, keep_freed_memory
from andrea_bench.measure.task import SAMPLING

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
PULSE = struct.Struct("<II")  # calls begun, index in the Task's members


def main() -> None:
    """Serve Tasks until standard input ends."""
    device, threads, pulse = sys.argv[1], int(sys.argv[2]), mmap.mmap(int(sys.argv[3]), PULSE.size)
    # Ctrl-C is the parent's to handle; and no worker outlives a parent that was killed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    fix_threads(threads)
    allocator = keep_freed_memory()
    # Collecting garbage while millions of objects come to stay is a tenth of the import's time.
    gc.disable()
    import torch

    gc.enable()
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    if device.startswith("cuda") and (reason := _cuda_reason(device)):
        _say(answers, event="unfit", reason=reason)
        return
    uuid, pci_bus_id = gpu_identity(device)
    _say(
        answers, event="ready", allocator=allocator, threads=threads, sampling=SAMPLING, gpu_uuid=uuid,
        gpu_pci_bus_id=pci_bus_id,
    )  # fmt: skip

    for line in sys.stdin.buffer:
        try:
            _serve(line, answers, pulse)
        except (SystemExit, KeyboardInterrupt) as error:
            _say(answers, event="stop", reason=f"a kernel raised {type(error).__name__}: {error}")
            return


def _serve(line: bytes, answers: BinaryIO, pulse: mmap.mmap) -> None:
    from andrea_bench.measure.clock import make_clock
    from andrea_bench.measure.counters import Watch
    from andrea_bench.measure.group import Task, measure_group

    task = msgspec.json.decode(line, type=Task)
    _use_tf32(task.problem.dtype == "tf32")
    seen: set[tuple[str, int]] = set()
    begun = 0

    def heartbeat(member: int, stage: str) -> None:
        nonlocal begun
        begun += 1
        PULSE.pack_into(pulse, 0, begun, member)
        if (stage, member) not in seen:
            seen.add((stage, member))
            _say(answers, event="at", kernel=task.members[member][1], stage=stage)

    clock = make_clock(task.protocol.timing_mode, task.protocol.cache, task.device)
    # A turn on a CPU is shorter than a tick of the kernel's counters: the parent watches many together.
    watch = None if task.checked and task.device == "cpu" else Watch(task.device, *gpu_identity(task.device))
    records = measure_group(task, clock, watch=watch, heartbeat=heartbeat)
    _say(answers, event="records", records=records)


def _use_tf32(wanted: bool) -> None:
    import torch

    torch.backends.cuda.matmul.allow_tf32 = wanted
    torch.backends.cudnn.allow_tf32 = wanted


def _cuda_reason(device: str) -> str | None:
    """Why torch can't use this CUDA device, in a line; None where it can. It is the current one from then on: events
    and graphs belong to the current device, whatever device the tensors lie on."""
    import torch

    try:
        torch.cuda.get_device_properties(device)
        torch.cuda.set_device(torch.device(device).index or 0)
    except (AssertionError, RuntimeError, ValueError) as error:
        return f"torch {torch.__version__} can't use {device}: {' '.join(str(error).split())[:200]}"
    return None


def gpu_identity(device: str) -> tuple[str | None, str | None]:
    """UUID and PCI bus id of a CUDA device as torch sees it: NVML counts cards in another order."""
    if not device.startswith("cuda"):
        return None, None
    import torch

    properties = torch.cuda.get_device_properties(device)
    uuid = getattr(properties, "uuid", None)
    bus = getattr(properties, "pci_bus_id", None)
    domain, slot = getattr(properties, "pci_domain_id", 0), getattr(properties, "pci_device_id", 0)
    pci = None if bus is None else f"{domain:08X}:{bus:02X}:{slot:02X}.0"
    return (None if uuid is None else f"GPU-{uuid}"), pci


def _say(answers: BinaryIO, **message: Any) -> None:
    answers.write(msgspec.json.encode(message) + b"\n")


if __name__ == "__main__":
    main()
