"""What single pages say: claims, ceilings, the machine, answers, structure, layer and layout."""

import json
import re
import statistics
from pathlib import Path
from typing import Any

import pytest
from made_up import FIXTURES, RUN, changed_run, wide
from page_parts import charts, marks, page

from andrea_bench.calibration import Calibration, Ceilings
from andrea_bench.cli.main import main
from andrea_bench.cli.report import _measured_ceiling
from andrea_bench.files import write_whole
from andrea_bench.hardware import find_gpu
from andrea_bench.report.charts import svg
from andrea_bench.report.content import Chart, CompiledFacts, Said, Table
from andrea_bench.report.rows import group_rows
from andrea_bench.store import read_run
from andrea_bench.suites.layer import STAGES


# ---- claims ------------------------------------------------------------------------------------------
def test_claims_are_a_table_of_findings(tmp_path: Path) -> None:
    claim = {
        "id": "tile-72", "statement": "<b>72</b> does not fit", "finding": "not_testable_here", "condition": "a GPU",
        "evidence": [{"on": "rtx_4090", "how": "compiled", "finding": "fails", "text": "80 | wide", "numbers": {}}],
    }  # fmt: skip
    stored, file = tmp_path / "claims.json", tmp_path / "claims.md"
    stored.write_text(json.dumps({"run": None, "claims": [claim]}))
    assert main(["report", "--claims", str(stored), "--markdown", str(file)]) == 0
    text = file.read_text(encoding="utf-8")
    assert "| tile-72 | not testable here | \\<b\\>72\\</b\\> does not fit | a GPU |" in text
    assert "| tile-72 | fails | compiled | rtx\\_4090 | 80 \\| wide |  |" in text
    stored.write_text("{}")
    assert main(["report", "--claims", str(stored), "--markdown", str(file)]) == 2


def test_claims_as_the_verb_writes_them(tmp_path: Path) -> None:
    # Written by `claims --json` on a CPU; of each claim one line of evidence for each way and finding was kept.
    stored, file = FIXTURES / "claims.json", tmp_path / "claims.md"
    assert main(["report", "--claims", str(stored), "--markdown", str(file)]) == 0
    plain = file.read_text(encoding="utf-8").replace("\\", "")
    written = json.loads(stored.read_text(encoding="utf-8"))["claims"]
    assert len(written) == 13
    findings, evidence = plain.partition("Statements and findings")[2].split("<details>")[:2]
    for claim in written:
        assert f"| {claim['id']} | {claim['finding']} | {claim['statement']} |" in findings
        for one in claim["evidence"]:
            assert f"| {claim['id']} | {one['finding'].replace('_', ' ')} | {one['how']} | {one['on']} |" in evidence


# ---- ceilings ----------------------------------------------------------------------------------------
@pytest.fixture
def calibrated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Calibration:
    """A calibration of the machine that the stored Run was made on, where `report` looks for one."""
    head = read_run(RUN).head
    found = Calibration(
        measured_at="2026-01-30T09:00:00+00:00", device="cpu", environment=head.environment,
        ceilings=Ceilings(threads=head.protocol["threads"], matmul_tflops={"float32": 0.004}, copy_gb_per_s=0.5),
    )  # fmt: skip
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    store(found, tmp_path)
    return found


def store(calibration: Calibration, tmp_path: Path) -> None:
    import msgspec

    file = tmp_path / "cache" / "andrea-bench" / "calibration.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    write_whole(file, msgspec.json.encode(calibration))


def test_what_calibrate_reached_is_the_ceiling(calibrated: Calibration, tmp_path: Path) -> None:
    chart = charts(page("roofline", RUN, ceiling=_measured_ceiling))[0]
    assert "0.00400 TFLOP/s and 0.500 GB/s by calibrate on 2026-01-30" in chart.about
    records = {r.cell_id: r for r in read_run(RUN).records}
    rows = {row[-1]: row for row in chart.data.rows}
    groups = group_rows(records.values())
    timed = {row.record.cell_id: row for group in groups for row in group.rows}
    bound = set()
    for cell_id, line in rows.items():
        record = records[cell_id]
        memory = 0.5 * record.flops / record.min_bytes / 1e3
        best = min(0.004, memory)
        bound.add(memory < 0.004)
        tflops = timed[cell_id].tflops
        assert tflops and line[5] == f"{100 * tflops / best:.1f} %"
    assert bound == {True, False}  # some lie below the slope, some below the roof
    # The same peak stands over the splits, and both the line and the percent are drawn.
    split = charts(page("splits", RUN, ceiling=_measured_ceiling))[0]
    assert "percent of the ceiling, 0.00400 TFLOP/s by calibrate on 2026-01-30" in split.about
    for line in split.data.rows:
        tflops = timed[line[-1]].tflops
        assert tflops and line[5] == f"{100 * tflops / 0.004:.1f} %"
    assert {mark["ceiling"] for mark in marks(chart, "line")} == {"calibrate on 2026-01-30"}
    assert max(mark["value"] for mark in marks(chart, "line")) == 0.004


@pytest.mark.parametrize("other", ["threads", "machine", "device"])
def test_a_calibration_of_something_else_is_no_ceiling(other: str, calibrated: Calibration, tmp_path: Path) -> None:
    if other == "threads":
        calibrated.ceilings.threads += 1
    elif other == "machine":
        calibrated.environment = {**calibrated.environment, "cpu": {"model": "another"}}
    else:
        calibrated.device = "cuda"
    store(calibrated, tmp_path)
    chart = charts(page("roofline", RUN, ceiling=_measured_ceiling))[0]
    assert "No ceiling of this machine is known" in chart.about and {row[5] for row in chart.data.rows} == {"-"}


def test_a_catalogued_gpu_is_the_ceiling(tmp_path: Path) -> None:
    def on_gpu(record: dict[str, Any]) -> None:
        record["device"] = "cuda"
        record["problem"]["dtype"] = "bfloat16"

    run = changed_run(tmp_path / "run", on_gpu, {"device": "cuda", "gpu": {"name": "NVIDIA GeForce RTX 4090"}})
    gpu = find_gpu("rtx_4090")
    peak, bandwidth = gpu.peak_tflops("bfloat16"), gpu.memory_bandwidth_gb_per_s
    assert peak and bandwidth
    one = page("roofline", run)
    chart = charts(one)[0]
    assert "the catalogue (rtx_4090)" in chart.about
    row = next(row for row in chart.data.rows if row[1] == "five_steps")
    group = next(g for g in group_rows(read_run(run).records) if g.row("five_steps"))
    whole = group.row("five_steps")
    assert whole and whole.tflops
    limit = min(peak, bandwidth * whole.record.flops / whole.record.min_bytes / 1e3)
    assert row[5] == f"{100 * whole.tflops / limit:.1f} %"
    # The split's share is of the peak alone.
    split = page("splits", run).parts[0]
    assert isinstance(split, Chart) and all(line[5].endswith(" %") for line in split.data.rows)


# ---- machine -----------------------------------------------------------------------------------------
def test_what_the_machine_did_meanwhile_is_the_span_over_all_groups(tmp_path: Path) -> None:
    groups: dict[tuple[str, str], float] = {}

    def watched(record: dict[str, Any]) -> None:
        others = groups.setdefault((record["suite"], json.dumps(record["problem"])), len(groups) ** 2 / 100)
        record["counters"] = {"cpu_cpus": 2, "cpu_foreign_cpus": others, "cpu_steal_share": 0.015}

    run = changed_run(tmp_path / "run", watched)
    table = next(part for part in page("machine", run).parts if isinstance(part, Table))
    lines = dict(line for line in table.rows if line[0].startswith("meanwhile"))
    n = len(groups)
    middle = statistics.median(at**2 / 100 for at in range(n))
    assert n > 10 and lines == {
        "meanwhile, CPUs that others kept busy":
            f"0.00 to {(n - 1) ** 2 / 100:.2f} of 2 CPUs, median {middle:.2f} ({n} Groups)",
        "meanwhile, steal": f"1.5 % ({n} Groups)",
    }  # fmt: skip


def test_groups_that_were_not_watched_are_counted_by_their_reason(tmp_path: Path) -> None:
    def unwatched(record: dict[str, Any]) -> None:
        record["counters"] = {"gpu_counters_reason": f"no driver {record['suite']}"}
        if record["suite"] == "layer":
            record["counters"] = {"gpu_samples": 4, "gpu_sm_clock_mhz": 1980, "gpu_event_reasons": ["sw_power_cap"]}

    table = next(p for p in page("machine", changed_run(tmp_path / "run", unwatched)).parts if isinstance(p, Table))
    lines = [line for line in table.rows if line[0].startswith("meanwhile")]
    assert lines[:2] == [("meanwhile, SM clock", "1980 MHz (1 Group)"), ("meanwhile, GPU slowed by",
                                                                         "sw_power_cap (1 Group)")]  # fmt: skip
    assert [text for _, text in lines[-1:]] == ["1 more reason: `show --json` has all"]
    assert sum("GPU: not watched: no driver" in text for _, text in lines) == 3


# ---- answers -----------------------------------------------------------------------------------------
def answers(run: Path) -> dict[str, str]:
    return {part.question: part.text for part in page("answers", run).parts if isinstance(part, Said)}


def test_an_answer_begins_with_its_question_and_yes_or_no(tmp_path: Path) -> None:
    def level(times: float) -> Any:
        def change(record: dict[str, Any]) -> None:
            if record["suite"] == "projection" and record["kernel"] in ("fused_qkv", "per_head_loop"):
                fused = record["kernel"] == "fused_qkv" and record["problem"]["seq_len"] == 32
                record["samples_us"] = [(times if fused else 1.0) * (100 + at % 3) for at in range(10)]

        return change

    question = "Fuse the projections of Q, K and V?"
    yes, no, same = (answers(changed_run(tmp_path / str(t), level(t))) for t in (0.5, 2.0, 1.0))
    assert f"{question} Yes." in yes and f"{question} No." in no and f"{question} No difference shown." in same
    # seq_len 64 is in the Run too, and there nothing differs.
    assert "Of 4 settings: 2 yes, 2 no difference shown." in yes[f"{question} Yes."]


def test_the_cost_of_a_head_dim_is_told_in_time_and_per_useful_flop(tmp_path: Path) -> None:
    text = answers(changed_run(tmp_path / "run", wide))["What does head_dim 24 cost?"]
    assert "attention by sdpa takes 3.20 ms at head_dim 24 and 1.60 ms at 16, 100.0 % more time for 50.0 % more " \
           "useful work: 33.3 % more per useful FLOP (1.33, 1.33 to 1.33; unpaired)" in text  # fmt: skip


# ---- structure ---------------------------------------------------------------------------------------
def test_gpus_that_waste_the_same_share_a_chart() -> None:
    def fact(gpu: str, head_dim: int, efficiency: float) -> dict[str, Any]:
        problem = {"batch": 1, "seq_len": 1024, "dtype": "bfloat16", "head_dim": head_dim}
        return {"gpu": gpu, "kernel": "triton_exact", "status": "ok", "direction": "forward", "problem": problem,
                "mma_efficiency": efficiency, "registers_per_thread": 100, "occupancy": 0.5}  # fmt: skip

    rows = [fact(gpu, *of) for gpu in ("a", "b", "c", "d") for of in ((64, 1.0), (72, 0.9))]
    rows += [fact("e", 64, 1.0), fact("e", 72, 0.5)]
    one = page("structure", facts=CompiledFacts({"triton": "3"}, rows, "", [], []))
    alike, other = charts(one)
    assert "4 GPUs alike" in alike.title and "The same on a, b, c, d." in alike.about
    assert "useful, e:" in other.title and "The same" not in other.about
    # Every GPU has its own figures in the table.
    assert {(row[0], row[2], row[3]) for row in alike.data.rows} == {
        (gpu, head_dim, waste) for gpu in "abcd" for head_dim, waste in (("64", "0.0 %"), ("72", "11.1 %"))
    }
    assert [mark["value"] for mark in marks(other, "point")] == [0.0, 100.0]


# ---- layer and layout --------------------------------------------------------------------------------
def test_stacked_stages_carry_their_sum() -> None:
    group = next(g for g in group_rows(read_run(RUN).records) if g.suite == "layer")
    stages = [group.row(kernel) for _, kernel in STAGES]
    total = sum(row.median_us or 0.0 for row in stages if row)
    chart = charts(page("layer", RUN))[0]
    texts = re.findall(r">([0-9.]+)</text>", svg(chart.picture))
    assert len(stages) == 4 and f"{total:.4g}" == "1001"
    assert "1000" in texts  # three digits; the axis writes 1,000


def test_the_layouts_of_one_product_are_compared_with_each_other() -> None:
    group = next(g for g in group_rows(read_run(RUN).records) if g.suite == "layout")
    chart = next(c for c in charts(page("layer", RUN)) if c.name.startswith("layout"))
    shown = {mark["name"]: mark["text"] for mark in marks(chart, "bar")}
    for product in ("qk", "attention"):
        copied, strided = group.row(f"{product}_contiguous"), group.row(f"{product}_strided")
        assert copied and strided and copied.median_us and strided.median_us
        assert shown[f"{product}_contiguous"].endswith(f", {copied.median_us / strided.median_us:.2f} x")
        assert " x" not in shown[f"{product}_strided"]
    assert " x" not in shown["split_heads"]
