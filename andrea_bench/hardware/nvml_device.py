"""A GPU as NVML knows it, whole or a MIG slice: what it is, what it does now, what has added up.

Readings come as dicts with a unit at the end of each name; an absent one is None beside `<name>_reason`.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from andrea_bench.hardware.nvml_codes import (
    CLOCK_MEMORY,
    CLOCK_SM,
    FUNCTION_NOT_FOUND,
    GPU_IS_LOST,
    MEMORY_INFO_V2,
    NOT_SUPPORTED,
    PCIE_FIELDS,
    POWER_AVERAGE_FIELD,
    POWER_INSTANT_FIELD,
    SLOWDOWN_FIELDS,
    TEMPERATURE_GPU,
    VALUE_MEMBERS,
    event_reasons,
    words,
)
from andrea_bench.hardware.readings import Absent, Readings, positive, put

Ask = Callable[..., Any]  # one call of NVML by its name and arguments; raises Absent


class Device:
    """A GPU, or one MIG slice of it.

    Of a slice, memory, processes, name and UUID are the slice's; clocks, temperature and slowdown are the
    whole card's, which all its slices share; power, energy and PCIe traffic aren't split and stay absent.
    `lost`: the card answered "GPU is lost" at least once.
    """

    def __init__(self, ask: Ask, card: Any, mig_slice: Any = None) -> None:
        self._asks, self._card, self._slice = ask, card, mig_slice
        self._own = card if mig_slice is None else mig_slice
        self.lost = False
        self.uuid = self._text("nvmlDeviceGetUUID", self._own)
        self.name = self._text("nvmlDeviceGetName", self._own)
        try:
            self.pci_bus_id: str | None = self._ask("nvmlDeviceGetPciInfo", card).busId
        except Absent:
            self.pci_bus_id = None
        try:
            self.mig_enabled = bool(self._ask("nvmlDeviceGetMigMode", card)[0])
        except Absent:  # not supported: every card before Ampere, and most GeForce
            self.mig_enabled = False

    def slices(self) -> list["Device"]:
        """The MIG slices of this card; none where MIG is off."""
        if not self.mig_enabled or self._slice is not None:
            return []
        found = []
        for index in range(self._ask("nvmlDeviceGetMaxMigDeviceCount", self._card)):
            try:
                handle = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", self._card, index)
            except Absent:  # places for slices need not be taken
                continue
            found.append(Device(self._asks, self._card, handle))
        return found

    def identity(self) -> Readings:
        """What the card is, and the settings that timings depend on."""
        card = self._card
        read: Readings = {}
        put(read, "uuid", lambda: self._ask("nvmlDeviceGetUUID", self._own))
        put(read, "name", lambda: self._ask("nvmlDeviceGetName", self._own))
        put(read, "pci_bus_id", lambda: self._ask("nvmlDeviceGetPciInfo", card).busId)
        read["mig_slice"] = self._slice is not None
        calls: dict[str, Callable[[], Any]] = {
            "compute_capability": lambda: ".".join(
                str(n) for n in self._ask("nvmlDeviceGetCudaComputeCapability", card)
            ),
            "cuda_cores": lambda: positive(self._ask("nvmlDeviceGetNumGpuCores", card)),
            "memory_bus_width_bits": lambda: positive(self._ask("nvmlDeviceGetMemoryBusWidth", card)),
            "max_sm_clock_mhz": lambda: positive(self._ask("nvmlDeviceGetMaxClockInfo", card, CLOCK_SM)),
            "max_memory_clock_mhz": lambda: positive(
                self._ask("nvmlDeviceGetMaxClockInfo", card, CLOCK_MEMORY)),
            "application_sm_clock_mhz": lambda: positive(
                self._ask("nvmlDeviceGetApplicationsClock", card, CLOCK_SM)),
            "application_memory_clock_mhz": lambda: positive(
                self._ask("nvmlDeviceGetApplicationsClock", card, CLOCK_MEMORY)),
            "power_limit_watts": lambda: positive(self._ask("nvmlDeviceGetEnforcedPowerLimit", card)) / 1e3,
            "default_power_limit_watts": lambda: positive(
                self._ask("nvmlDeviceGetPowerManagementDefaultLimit", card)) / 1e3,
            "ecc_enabled": lambda: bool(self._ask("nvmlDeviceGetEccMode", card)[0]),
            "mig_enabled": lambda: bool(self._ask("nvmlDeviceGetMigMode", card)[0]),
            "persistence_mode": lambda: bool(self._ask("nvmlDeviceGetPersistenceMode", card)),
            "display_active": lambda: bool(self._ask("nvmlDeviceGetDisplayActive", card)),
        }  # fmt: skip
        for name, call in calls.items():
            put(read, name, call)
        memory = self.memory()
        read |= {key: memory[key] for key in memory if key.startswith("memory_total_bytes")}
        return read

    def state(self) -> Readings:
        """What the card is doing now: cheap calls only."""
        card = self._card
        read: Readings = {}
        calls: dict[str, Callable[[], Any]] = {
            "sm_clock_mhz": lambda: positive(self._ask("nvmlDeviceGetClockInfo", card, CLOCK_SM)),
            "memory_clock_mhz": lambda: positive(self._ask("nvmlDeviceGetClockInfo", card, CLOCK_MEMORY)),
            "temperature_celsius": self._temperature,
            "power_watts": lambda: positive(self._ask("nvmlDeviceGetPowerUsage", self._whole())) / 1e3,
            "energy_joules": lambda: self._ask("nvmlDeviceGetTotalEnergyConsumption", self._whole()) / 1e3,
            "performance_state": lambda: self._performance_state(),
            "event_reasons": lambda: self._event_reasons(),
        }
        for name, call in calls.items():
            put(read, name, call)
        fields = {"power_average_watts": POWER_AVERAGE_FIELD, "power_instant_watts": POWER_INSTANT_FIELD}
        read |= self._fields(fields, lambda milliwatts: positive(milliwatts) / 1e3, whole_card_only=True)
        return read | self._utilisation() | self.memory()

    def memory(self) -> Readings:
        """memory_total_bytes, memory_used_bytes. A total of 0 is unknown (boards with unified memory)."""
        read: Readings = {}
        try:
            try:
                info = self._ask("nvmlDeviceGetMemoryInfo", self._own, MEMORY_INFO_V2)
            except Absent:  # older drivers; version 1 counts what the driver reserves as used
                info = self._ask("nvmlDeviceGetMemoryInfo", self._own)
            put(read, "memory_total_bytes", lambda: positive(info.total))
            read["memory_used_bytes"] = info.used if info.total else None
            if not info.total:
                read["memory_used_bytes_reason"] = read["memory_total_bytes_reason"]
        except Absent as error:
            for name in ("memory_total_bytes", "memory_used_bytes"):
                read[name], read[f"{name}_reason"] = None, str(error)
        return read

    def totals(self) -> Readings:
        """What counts up: `slowdown_<kind>_s`, seconds in each slowdown; bytes over PCIe. Differences of two
        readings miss nothing in between."""
        times = {f"slowdown_{kind}_s": field for kind, field in SLOWDOWN_FIELDS.items()}
        read = self._fields(times, lambda nanoseconds: nanoseconds / 1e9)
        return read | self._fields(PCIE_FIELDS, int, whole_card_only=True)

    def pcie(self) -> Readings:
        """pcie_sent_gb_per_s, pcie_received_gb_per_s; each call takes the 20 ms that it counts over."""
        read: Readings = {}
        for name, counter in (("pcie_sent_gb_per_s", 0), ("pcie_received_gb_per_s", 1)):
            put(read, name, partial(self._pcie, counter))
        return read

    def processes(self) -> list[Readings]:
        """The compute processes on the card or slice: pid, used_memory_bytes. Raises Absent.

        Process ids are the host's; in a container they need not be the ones seen there.
        """
        calls = "nvmlDeviceGetComputeRunningProcesses", "nvmlDeviceGetComputeRunningProcesses_v2"
        running = self._ask_either(*calls, self._own)
        return [{"pid": int(p.pid), "used_memory_bytes": p.usedGpuMemory} for p in running]

    # ---- single readings ------------------------------------------------------------------------------
    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return self._asks(name, *arguments)
        except Absent as error:
            self.lost = self.lost or error.code == GPU_IS_LOST
            raise

    def _ask_either(self, newer: str, older: str, *arguments: Any) -> Any:
        """The newer of two calls for the same, the older one where the driver has only that."""
        try:
            return self._ask(newer, *arguments)
        except Absent as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
            return self._ask(older, *arguments)

    def _text(self, call: str, handle: Any) -> str | None:
        try:
            return str(self._ask(call, handle))
        except Absent:
            return None

    def _whole(self) -> Any:
        if self._slice is not None:
            raise Absent("not split by MIG slice")
        return self._card

    def _pcie(self, counter: int) -> float:
        return float(self._ask("nvmlDeviceGetPcieThroughput", self._whole(), counter)) / 1e6

    def _temperature(self) -> int:
        calls = "nvmlDeviceGetTemperatureV", "nvmlDeviceGetTemperature"
        return int(self._ask_either(*calls, self._card, TEMPERATURE_GPU))

    def _performance_state(self) -> str:
        state = self._ask("nvmlDeviceGetPerformanceState", self._card)
        if not 0 <= state <= 15:  # NVML_PSTATE_UNKNOWN is 32
            raise Absent("unknown to the driver")
        return f"P{state}"

    def _event_reasons(self) -> list[str]:
        calls = "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"
        return event_reasons(self._ask_either(*calls, self._card))

    def _utilisation(self) -> Readings:
        names = ("gpu_utilisation_percent", "memory_utilisation_percent")
        try:
            rates = self._ask("nvmlDeviceGetUtilizationRates", self._own)
        except Absent as error:
            hint = " (MIG)" if error.code == NOT_SUPPORTED and self.mig_enabled else ""
            return {k: v for name in names for k, v in ((name, None), (f"{name}_reason", f"{error}{hint}"))}
        return dict(zip(names, (int(rates.gpu), int(rates.memory)), strict=True))

    def _fields(
        self, fields: dict[str, int], convert: Callable[[Any], Any], *, whole_card_only: bool = False
    ) -> Readings:
        """Field values by name. The call succeeds as a whole: each entry carries its own return code, and an
        entry that is not supported reads 0."""
        try:
            card = self._whole() if whole_card_only else self._card
            values = self._ask("nvmlDeviceGetFieldValues", card, [(number, 0) for number in fields.values()])
        except Absent as error:
            return {k: v for n in fields for k, v in ((n, None), (f"{n}_reason", str(error)))}
        read: Readings = {}
        for name, value in zip(fields, values, strict=True):
            put(read, name, partial(self._converted, value, convert))
        return read

    def _converted(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        if value.nvmlReturn:
            self.lost = self.lost or value.nvmlReturn == GPU_IS_LOST
            raise Absent(words(value.nvmlReturn), value.nvmlReturn)
        if not 0 <= value.valueType < len(VALUE_MEMBERS):
            raise Absent(f"value of unknown type {value.valueType}")
        return convert(getattr(value.value, VALUE_MEMBERS[value.valueType]))
