"""Runs made up from the stored one: other machines, clocks that were counted, several processes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUN = FIXTURES / "run_fake"

Change = Callable[[dict[str, Any]], None]


def changed_run(
    folder: Path,
    change: Change | None = None,
    environment: dict[str, Any] | None = None,
    suites: tuple[str, ...] = (),
    **head: Any,
) -> Path:
    """A copy of the stored Run with each record changed, and its environment and head; suites: of these alone."""
    folder.mkdir(parents=True)
    document = json.loads((RUN / "run.json").read_text()) | head
    document["environment"] |= environment or {}
    (folder / "run.json").write_text(json.dumps(document))
    records = [json.loads(line) for line in (RUN / "records.jsonl").read_text().splitlines()]
    records = [record for record in records if not suites or record["suite"] in suites]
    for record in records:
        if change:
            change(record)
    (folder / "records.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
    return folder


def in_processes(record: dict[str, Any], times: float = 1.0, processes: int = 30) -> None:
    """The record as if its samples came from so many processes, `times` as long, off by up to 0.2 % among them."""
    if record["samples_us"]:
        level = record["samples_us"][0] * times
        record["samples_us"] = [level * (1 + 0.0001 * (7 * at % 21)) for at in range(processes)]
        record["block"] = list(range(processes))
        record["round"], record["order"] = [0] * processes, list(range(processes))


H200 = {
    "gpu_samples": 40, "gpu_sm_clock_mhz": 1980, "gpu_sm_clock_min_mhz": 1755, "gpu_memory_clock_mhz": 3201,
    "gpu_max_sm_clock_mhz": 1980, "gpu_power_watts": 612.5, "gpu_power_limit_watts": 700.0,
    "gpu_temperature_celsius": 61, "interval_s": 4.2,
}  # fmt: skip


def on_h200(record: dict[str, Any]) -> None:
    """The record as if made on an H200 that was watched, energy counted after the samples."""
    record["device"] = "cuda"
    record["problem"]["dtype"] = "bfloat16"
    if record["samples_us"]:
        record["timing_mode"] = "cuda_event"
        call = {"joules_per_call": 0.25, "average_watts": 640.0, "tflop_per_joule": 0.82,
                "relative_error_bound": 0.04, "calls": 12800, "window_s": 5.0, "reason": None}  # fmt: skip
        if record["kernel"] == "eager":
            call |= {"joules_per_call": None, "reason": "no call ended within the window"}
        record["counters"] = {**record["counters"], **H200, "gpu_energy_per_call": call}


def wide(record: dict[str, Any]) -> None:
    """72-like: 17 and 24 are computed 32 wide; the time follows the width that is computed."""
    if record["op"] == "attention" and record["samples_us"]:
        head_dim = record["problem"]["head_dim"]
        computed = 16 if head_dim <= 16 else 32
        record["counters"]["computed_width"] = computed
        if record["suite"] == "alignment":
            record["samples_us"] = [100.0 * computed + 0.01 * at for at in range(10)]
