"""NVML: what the NVIDIA driver says of a GPU, each reading by itself: a value, or None with the reason.

The only module that imports pynvml (package nvidia-ml-py), and only when NVML is opened: a machine without
it, without a driver or without a GPU gets `Absent` with one line, and goes on. Only `Get` calls are made;
no setting of a card is ever changed.

Readings come as dicts with a unit at the end of each name; an absent one is None beside `<name>_reason`.
Calls and units: NVIDIA's nvml.h 13.5 and nvidia-ml-py 13.615.
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
    REMEDIES,
    SLOWDOWN_FIELDS,
    TEMPERATURE_GPU,
    VALUE_MEMBERS,
    event_reasons,
    same_pci,
    same_uuid,
    words,
)

Readings = dict[str, Any]


class Absent(Exception):
    """What can't be read; the text is the reason in words. `code` is NVML's return code, where it has one."""

    def __init__(self, reason: str, code: int | None = None) -> None:
        super().__init__(reason)
        self.code = code


class Nvml:
    """An open connection to the driver. `refused`: one line for each GPU that could not be opened."""

    def __init__(self) -> None:
        """Raises Absent with cause and remedy where NVML can't start."""
        self._pynvml = _bindings()
        self.refused: list[str] = []
        try:
            self._pynvml.nvmlInit()
        except self._pynvml.NVMLError as error:
            remedy = REMEDIES.get(error.value)
            raise Absent(words(error.value) + (f": {remedy}" if remedy else ""), error.value) from None

    def close(self) -> None:
        """Shut NVML down. A driver that has gone away has nothing left to shut down."""
        try:
            self._pynvml.nvmlShutdown()
        except self._pynvml.NVMLError as error:
            self.refused.append(f"shutdown: {words(error.value)}")

    def ask(self, name: str, *arguments: Any) -> Any:
        """One call of pynvml. Raises Absent."""
        function = getattr(self._pynvml, name, None)
        if function is None:
            raise Absent("not in this version of nvidia-ml-py", FUNCTION_NOT_FOUND)
        try:
            return function(*arguments)
        except self._pynvml.NVMLError as error:
            raise Absent(words(error.value), error.value) from None
        except getattr(self._pynvml, "NVMLLibraryMismatchError", ()):  # no NVMLError, despite its name
            raise Absent(words(FUNCTION_NOT_FOUND), FUNCTION_NOT_FOUND) from None
        except UnicodeDecodeError:
            raise Absent("the driver's text is no UTF-8") from None

    def versions(self) -> Readings:
        """driver_version, and cuda_driver_version: the newest CUDA that the driver can run."""
        readings: Readings = {}
        _put(readings, "driver_version", lambda: self.ask("nvmlSystemGetDriverVersion"))
        _put(readings, "cuda_driver_version",
             lambda: _cuda_version(self.ask("nvmlSystemGetCudaDriverVersion_v2")))  # fmt: skip
        return readings

    def cards(self) -> list["Device"]:
        """The GPUs of the machine, in NVML's order, whatever CUDA_VISIBLE_DEVICES says. Raises Absent."""
        self.refused, found = [], []
        for index in range(self.ask("nvmlDeviceGetCount")):
            try:
                found.append(Device(self, self.ask("nvmlDeviceGetHandleByIndex", index)))
            except Absent as error:
                self.refused.append(f"GPU {index}: {error}")
        return found

    def find(self, uuid: str | None = None, pci_bus_id: str | None = None) -> "Device":
        """The GPU or MIG slice of that UUID (with or without `GPU-`/`MIG-`), or the GPU at that PCI id
        (`0000:01:00.0`, any width). Raises Absent: never another card than the one asked for."""
        if not uuid and not pci_bus_id:
            raise Absent("neither UUID nor PCI id of the GPU is known")
        cards = self.cards()
        if uuid:
            for card in cards:
                for device in (card, *card.slices()):
                    if same_uuid(device.uuid, uuid):
                        return device
        if pci_bus_id:
            for card in cards:
                if card.pci_bus_id and same_pci(card.pci_bus_id, pci_bus_id):
                    if card.mig_enabled:
                        raise Absent(f"the GPU at {pci_bus_id} is split by MIG; a slice goes by UUID")
                    if uuid and card.uuid:
                        raise Absent(f"the GPU at {pci_bus_id} has UUID {card.uuid}, not {uuid}")
                    return card
        refused = f" ({'; '.join(self.refused)})" if self.refused else ""
        raise Absent(f"NVML has no GPU with {f'UUID {uuid}' if uuid else f'PCI id {pci_bus_id}'}{refused}")


class Device:
    """A GPU, or one MIG slice of it.

    Of a slice, memory, processes, name and UUID are the slice's; clocks, temperature and slowdown are the
    whole card's, which all its slices share; power, energy and PCIe traffic aren't split and stay absent.
    `lost`: the card answered "GPU is lost" at least once.
    """

    def __init__(self, nvml: Nvml, card: Any, mig_slice: Any = None) -> None:
        self._nvml, self._card, self._slice = nvml, card, mig_slice
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
            found.append(Device(self._nvml, self._card, handle))
        return found

    def identity(self) -> Readings:
        """What the card is, and the settings that timings depend on."""
        card = self._card
        read: Readings = {}
        _put(read, "uuid", lambda: self._ask("nvmlDeviceGetUUID", self._own))
        _put(read, "name", lambda: self._ask("nvmlDeviceGetName", self._own))
        _put(read, "pci_bus_id", lambda: self._ask("nvmlDeviceGetPciInfo", card).busId)
        read["mig_slice"] = self._slice is not None
        calls: dict[str, Callable[[], Any]] = {
            "compute_capability": lambda: ".".join(
                str(n) for n in self._ask("nvmlDeviceGetCudaComputeCapability", card)
            ),
            "cuda_cores": lambda: _positive(self._ask("nvmlDeviceGetNumGpuCores", card)),
            "memory_bus_width_bits": lambda: _positive(self._ask("nvmlDeviceGetMemoryBusWidth", card)),
            "max_sm_clock_mhz": lambda: _positive(self._ask("nvmlDeviceGetMaxClockInfo", card, CLOCK_SM)),
            "max_memory_clock_mhz": lambda: _positive(
                self._ask("nvmlDeviceGetMaxClockInfo", card, CLOCK_MEMORY)),
            "power_limit_watts": lambda: _positive(self._ask("nvmlDeviceGetEnforcedPowerLimit", card)) / 1e3,
            "default_power_limit_watts": lambda: _positive(
                self._ask("nvmlDeviceGetPowerManagementDefaultLimit", card)) / 1e3,
            "ecc_enabled": lambda: bool(self._ask("nvmlDeviceGetEccMode", card)[0]),
            "mig_enabled": lambda: bool(self._ask("nvmlDeviceGetMigMode", card)[0]),
            "persistence_mode": lambda: bool(self._ask("nvmlDeviceGetPersistenceMode", card)),
            "display_active": lambda: bool(self._ask("nvmlDeviceGetDisplayActive", card)),
        }  # fmt: skip
        for name, call in calls.items():
            _put(read, name, call)
        memory = self.memory()
        read |= {key: memory[key] for key in memory if key.startswith("memory_total_bytes")}
        return read

    def state(self) -> Readings:
        """What the card is doing now: cheap calls only."""
        card = self._card
        read: Readings = {}
        calls: dict[str, Callable[[], Any]] = {
            "sm_clock_mhz": lambda: _positive(self._ask("nvmlDeviceGetClockInfo", card, CLOCK_SM)),
            "memory_clock_mhz": lambda: _positive(self._ask("nvmlDeviceGetClockInfo", card, CLOCK_MEMORY)),
            "temperature_celsius": self._temperature,
            "power_watts": lambda: _positive(self._ask("nvmlDeviceGetPowerUsage", self._whole())) / 1e3,
            "energy_joules": lambda: self._ask("nvmlDeviceGetTotalEnergyConsumption", self._whole()) / 1e3,
            "performance_state": lambda: self._performance_state(),
            "event_reasons": lambda: self._event_reasons(),
        }
        for name, call in calls.items():
            _put(read, name, call)
        fields = {"power_average_watts": POWER_AVERAGE_FIELD, "power_instant_watts": POWER_INSTANT_FIELD}
        read |= self._fields(fields, lambda milliwatts: _positive(milliwatts) / 1e3, whole_card_only=True)
        return read | self._utilisation() | self.memory()

    def memory(self) -> Readings:
        """memory_total_bytes, memory_used_bytes. A total of 0 is unknown (boards with unified memory)."""
        read: Readings = {}
        try:
            try:
                info = self._ask("nvmlDeviceGetMemoryInfo", self._own, MEMORY_INFO_V2)
            except Absent:  # older drivers; version 1 counts what the driver reserves as used
                info = self._ask("nvmlDeviceGetMemoryInfo", self._own)
            _put(read, "memory_total_bytes", lambda: _positive(info.total))
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
            _put(read, name, partial(self._pcie, counter))
        return read

    def processes(self) -> list[Readings]:
        """The compute processes on the card or slice: pid, used_memory_bytes. Raises Absent.

        Process ids are the host's; in a container they need not be the ones seen there.
        """
        try:
            running = self._ask("nvmlDeviceGetComputeRunningProcesses", self._own)
        except Absent as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
            running = self._ask("nvmlDeviceGetComputeRunningProcesses_v2", self._own)
        return [{"pid": int(p.pid), "used_memory_bytes": p.usedGpuMemory} for p in running]

    # ---- single readings ------------------------------------------------------------------------------
    def _ask(self, name: str, *arguments: Any) -> Any:
        try:
            return self._nvml.ask(name, *arguments)
        except Absent as error:
            self.lost = self.lost or error.code == GPU_IS_LOST
            raise

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
        try:
            return int(self._ask("nvmlDeviceGetTemperatureV", self._card, TEMPERATURE_GPU))
        except Absent as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
            return int(self._ask("nvmlDeviceGetTemperature", self._card, TEMPERATURE_GPU))

    def _performance_state(self) -> str:
        state = self._ask("nvmlDeviceGetPerformanceState", self._card)
        if not 0 <= state <= 15:  # NVML_PSTATE_UNKNOWN is 32
            raise Absent("unknown to the driver")
        return f"P{state}"

    def _event_reasons(self) -> list[str]:
        try:
            mask = self._ask("nvmlDeviceGetCurrentClocksEventReasons", self._card)
        except Absent as error:
            if error.code != FUNCTION_NOT_FOUND:
                raise
            mask = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", self._card)
        return event_reasons(mask)

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
            _put(read, name, partial(self._converted, value, convert))
        return read

    def _converted(self, value: Any, convert: Callable[[Any], Any]) -> Any:
        if value.nvmlReturn:
            self.lost = self.lost or value.nvmlReturn == GPU_IS_LOST
            raise Absent(words(value.nvmlReturn), value.nvmlReturn)
        if not 0 <= value.valueType < len(VALUE_MEMBERS):
            raise Absent(f"value of unknown type {value.valueType}")
        return convert(getattr(value.value, VALUE_MEMBERS[value.valueType]))


def _bindings() -> Any:
    try:
        import pynvml
    except ImportError:
        raise Absent("the package nvidia-ml-py is not installed: pip install nvidia-ml-py") from None
    # Another package installs a module of this name, with other functions.
    if not hasattr(pynvml, "_nvmlGetFunctionPointer"):
        raise Absent("the module pynvml is not NVIDIA's: pip uninstall pynvml; pip install nvidia-ml-py")
    return pynvml


def _put(readings: Readings, name: str, read: Callable[[], Any]) -> None:
    try:
        readings[name] = read()
    except Absent as error:
        readings[name] = None
        readings[f"{name}_reason"] = str(error)


def _positive(value: Any) -> Any:
    """The value, where 0 can't be true (clocks, limits, power, memory of a working card)."""
    if not value:
        raise Absent("the driver says 0")
    return value


def _cuda_version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
