"""What asv measures: a class a suite, thin over andrea_bench.asv_adapter, and one for compiled code.

Free of torch, except in asv's fork server: there torch is imported once, ahead of the forks, instead of once in
every measuring process. Nothing here touches CUDA, which does not survive a fork.
"""

import importlib
import sys

from andrea_bench.measure.allocator import fix_threads, keep_freed_memory

# Before torch: one thread waits for no neighbour, and freed memory stays mapped, so that a call's time does not
# depend on the layout of the heap (the cause of most of asv's false alarms on a CPU).
fix_threads(1)
keep_freed_memory()

if "run_server" in sys.argv:
    importlib.import_module("andrea_bench.measure.group")
    # The profiler, by which memory is counted, imports it at its first start: seconds in each process.
    importlib.import_module("torch._dynamo")
