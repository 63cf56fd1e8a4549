"""What the assembler says a kernel uses: registers, spills, stack, static shared memory, barriers."""

import re

import msgspec


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """From `ptxas -v`. Bytes are per thread, but static_shared_memory_bytes is per block."""

    registers_per_thread: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_memory_bytes: int
    barriers: int


def read_resources(log: str, kernel: str) -> Resources:
    """The resources of `kernel` in what ptxas printed with -v. Raises ValueError where they are not in there."""
    start = re.search(rf"Compiling entry function '{re.escape(kernel)}' for", log)
    if start is None:
        raise ValueError(f"ptxas printed nothing about {kernel}")
    entry = log[start.end() :].partition("Compiling entry function")[0]
    used = re.search(r"Used (\d+) registers([^\n]*)", entry)
    properties = entry.partition(f"Function properties for {kernel}")[2]
    frame = re.search(
        r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", properties or entry
    )
    if used is None or frame is None:
        raise ValueError(f"ptxas printed no registers or spills of {kernel}")
    cumulative = re.search(r"(\d+) bytes cumulative stack size", used[2])
    shared = re.search(r"(\d+) bytes smem", used[2])
    barriers = re.search(r"used (\d+) barriers", used[2])
    return Resources(
        registers_per_thread=int(used[1]),
        spill_store_bytes=int(frame[2]),
        spill_load_bytes=int(frame[3]),
        stack_bytes=int((cumulative or frame)[1]),
        static_shared_memory_bytes=int(shared[1]) if shared else 0,
        barriers=int(barriers[1]) if barriers else 0,
    )
