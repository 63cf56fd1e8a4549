"""What is known of hardware: the GPU catalogue and occupancy. The machine's own counters (nvml, cpu) are
modules of their own and are imported by who reads them."""

from andrea_bench.hardware.gpu import Architecture, Gpu, architectures, find_gpu, gpus, match_device_name

# The function, on purpose, not the module of the same name.
from andrea_bench.hardware.occupancy import Occupancy, occupancy

__all__ = [
    "Architecture",
    "Gpu",
    "Occupancy",
    "architectures",
    "find_gpu",
    "gpus",
    "match_device_name",
    "occupancy",
]
