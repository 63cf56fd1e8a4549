"""NVML's numbers in words: return codes, clocks event reasons, fields; and how devices are named.

Sources: NVIDIA's nvml.h 13.5 and nvidia-ml-py 13.615. pynvml has no text for some return codes and asks the
driver for it, which may be what failed; and it names two event reasons differently.
"""

import re

RETURN_CODES = {
    1: "NVML is shut down", 2: "invalid argument", 3: "not supported", 4: "no permission",
    6: "not found", 7: "buffer too small", 8: "external power missing",
    9: "the NVIDIA driver is not loaded", 10: "timeout", 11: "interrupt problem",
    12: "no NVIDIA driver library (libnvidia-ml.so.1)", 13: "not in this driver version",
    14: "corrupt infoROM", 15: "GPU is lost", 16: "GPU needs a reset",
    17: "blocked by the operating system", 18: "driver and driver library differ in version",
    19: "GPU is in use", 20: "out of memory", 21: "no data", 22: "not supported with ECC on a virtual GPU",
    23: "insufficient resources", 24: "frequency not supported", 25: "version of the call not supported",
    26: "deprecated", 27: "not ready", 28: "GPU not found", 29: "invalid state",
    30: "reset type not supported", 999: "unknown error in the driver",
}  # fmt: skip
NOT_SUPPORTED, FUNCTION_NOT_FOUND, GPU_IS_LOST = 3, 13, 15
REMEDIES = {
    9: "load it (sudo modprobe nvidia), or install the driver",
    12: "install the NVIDIA driver; in a container, start it with the GPU passed through",
    18: "reboot after a driver update",
}

# Bits of the clocks event reasons (nvmlClocksEventReason*).
EVENT_REASONS = {
    0x1: "idle", 0x2: "application clocks setting", 0x4: "software power cap", 0x8: "hardware slowdown",
    0x10: "sync boost", 0x20: "software thermal slowdown", 0x40: "hardware thermal slowdown",
    0x80: "hardware power brake", 0x100: "display clocks setting", 0x200: "board limit",
    0x400: "reliability limit",
}  # fmt: skip

# Cumulative nanoseconds in each slowdown (nvml.h NVML_FI_DEV_PERF_POLICY_*, _CLOCKS_EVENT_REASON_*).
SLOWDOWN_FIELDS = {"power_cap": 74, "sync_boost": 76, "software_thermal": 269, "hardware_thermal": 270,
                   "power_brake": 271}  # fmt: skip
POWER_AVERAGE_FIELD, POWER_INSTANT_FIELD = 185, 186  # mW; average: Ampere and newer except GA100
PCIE_FIELDS = {"pcie_sent_bytes": 197, "pcie_received_bytes": 198}  # cumulative
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
CLOCK_SM, CLOCK_MEMORY, TEMPERATURE_GPU, MEMORY_INFO_V2 = 1, 2, 0, 0x02000028


def words(code: int) -> str:
    """An NVML return code in words."""
    return RETURN_CODES.get(code, f"NVML error {code}")


def event_reasons(mask: int) -> list[str]:
    """The reasons in a clocks event mask, in words; bits that nvml.h doesn't name stay numbers."""
    named = [text for bit, text in EVENT_REASONS.items() if mask & bit]
    rest = mask & ~sum(EVENT_REASONS)
    return [*named, f"unknown reason {rest:#x}"] if rest else named


def same_uuid(one: str | None, other: str | None) -> bool:
    """Whether two UUIDs name one device: CUDA writes them with or without `GPU-`, in either case."""
    if not one or not other:
        return False
    bare = [re.sub(r"^(gpu|mig)-", "", text.strip().lower()) for text in (one, other)]
    return bare[0] == bare[1]


def same_pci(one: str, other: str) -> bool:
    """Whether two PCI ids name one slot: NVML writes the domain with 8 digits, others with 4 or none, and
    without the function."""
    return _pci_numbers(one) == _pci_numbers(other) != ()


def _pci_numbers(text: str) -> tuple[int, ...]:
    parts = text.strip().partition(".")[0].split(":")
    try:
        numbers = tuple(int(part, 16) for part in parts)
    except ValueError:
        return ()  # matches no slot
    return (0, *numbers) if len(numbers) == 2 else numbers
