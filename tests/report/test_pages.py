"""What single pages say: claims, ceilings, computed widths, cliffs, energy and clocks, answers."""

import json
import re
import statistics
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from made_up import FIXTURES, RUN, changed_run, on_h200

from andrea_bench.calibration import Calibration, Ceilings
from andrea_bench.cli.main import main
from andrea_bench.cli.report import _measured_ceiling
from andrea_bench.hardware import find_gpu
from andrea_bench.report.charts import lines, svg
from andrea_bench.report.content import Chart, CompiledFacts, Page, Said, Subject, Table
from andrea_bench.report.pages import pages
from andrea_bench.report.rows import group_rows
from andrea_bench.report.subject import read_runs
from andrea_bench.store import read_run, write_whole
from andrea_bench.suites.layer import STAGES


def page(name: str, *runs: Path, facts: CompiledFacts | None = None, ceiling: Any = lambda head: None) -> Page:
    made = pages(Subject(read_runs(runs, ceiling), facts, "andrea-bench report"))
    return next(one for one in made if one.name == name)


def charts(one: Page) -> list[Chart]:
    return [part for part in one.parts if isinstance(part, Chart)]


def marks(chart: Chart, kind: str) -> list[dict[str, Any]]:
    """The values behind the marks of that kind, layer by layer."""
    return list(_marks(chart.picture.to_dict(validate=False), kind, []))


def _marks(layer: dict[str, Any], kind: str, values: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    values = layer.get("data", {}).get("values", values)  # a layer without data of its own has its parent's
    mark = layer.get("mark", {})
    if (mark if isinstance(mark, str) else mark["type"] if mark else None) == kind:
        yield from values
    for inner in layer.get("layer", []):
        yield from _marks(inner, kind, values)


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


# ---- alignment ---------------------------------------------------------------------------------------
def wide(record: dict[str, Any]) -> None:
    """72-like: 17 and 24 are computed 32 wide; the time follows the width that is computed."""
    if record["op"] == "attention" and record["samples_us"]:
        head_dim = record["problem"]["head_dim"]
        computed = 16 if head_dim <= 16 else 32
        record["counters"]["computed_width"] = computed
        if record["suite"] == "alignment":
            record["samples_us"] = [100.0 * computed + 0.01 * at for at in range(10)]


def test_computed_width_stands_as_steps_behind_the_lines(tmp_path: Path) -> None:
    chart = next(c for c in charts(page("alignment", changed_run(tmp_path / "run", wide))) if "(alignment)" in c.title)
    behind = [mark for mark in marks(chart, "line") if "about" not in mark]
    assert {(mark["x"], mark["value"]) for mark in behind} == {(8, 16), (15, 16), (16, 16), (17, 32), (24, 32)}
    assert "Grey steps" in chart.about and chart.data.columns[-2] == "computed width"
    assert next(row for row in chart.data.rows if row[1] == "17")[-2] == "32"
    # Where no kernel tells, nothing is promised.
    chart = next(c for c in charts(page("alignment", RUN)) if "(alignment)" in c.title)
    assert "Grey steps" not in chart.about and "computed width" not in chart.data.columns


def test_facts_of_the_measured_gpu_give_the_width_where_records_do_not(tmp_path: Path) -> None:
    def on_gpu(record: dict[str, Any]) -> None:
        record["device"], record["problem"]["dtype"] = "cuda", "bfloat16"

    run = changed_run(tmp_path / "run", on_gpu, {"device": "cuda", "gpu": {"name": "NVIDIA GeForce RTX 4090"}})
    fact = {"kernel": "sdpa", "status": "ok", "direction": "forward", "computed_width_qk": 32, "computed_width_pv": 32,
            "problem": {"head_dim": 24, "dtype": "bfloat16"}}  # fmt: skip
    both = [{**fact, "gpu": "rtx_4090"}, {**fact, "gpu": "h200_sxm", "computed_width_qk": 64}]
    facts = CompiledFacts({}, both, "", [], [])
    chart = next(c for c in charts(page("alignment", run, facts=facts)) if "(alignment)" in c.title)
    behind = [mark for mark in marks(chart, "line") if "about" not in mark]
    assert {(mark["x"], mark["value"]) for mark in behind} == {(24, 32)}


def test_cliffs_are_named_with_their_cost_beside_their_own_neighbour(tmp_path: Path) -> None:
    one = page("alignment", changed_run(tmp_path / "run", wide))
    said = {part.question: part for part in one.parts if isinstance(part, Said)}
    # 17 costs 2 x 16/17 of what 16 does: +88 %; 15 at the width of 16 costs 16/15: +7 %, no cliff.
    # Ten samples: the interval of the median reaches from the 2nd to the 9th, 0.07 us of 3200: all is +88.2 %.
    text = said["Cliff at head_dim 17:"].text
    assert text == "sdpa +88 % (+88.2 to +88.2 %), per useful FLOP beside 16 (unpaired intervals)."
    assert "Cliff at head_dim 24:" in said and "Cliff at head_dim 15:" not in said
    ids = said["Cliff at head_dim 17:"].cell_ids
    records = {r.cell_id: r for r in read_run(RUN).records}
    assert [records[i].problem.head_dim for i in ids] == [17, 16]
    chart = next(c for c in charts(one) if "(alignment)" in c.title)
    notes = [mark["note"] for mark in marks(chart, "text") if mark["note"]]
    assert "17: +88 %" in notes


def test_notes_that_would_touch_stand_one_above_the_other() -> None:
    def heights(*at: int) -> dict[int, float]:
        values = [{"series": "sdpa", "x": x, "value": 1.0, "low": 1.0, "high": 1.0, "about": "", "note": f"{x}: +30 %"}
                  for x in at]  # fmt: skip
        drawn = lines(values, "head_dim", "us", zero=False).to_dict()
        texts = [layer for layer in drawn["layer"] if layer["mark"]["type"] == "text"]
        return {value["x"]: layer["mark"]["dy"] for layer in texts for value in layer["data"]["values"]}

    # Of a span of 128 on 420 pixels, 8 are 26 pixels: less than a note takes; 32 are 105.
    assert heights(0, 32, 128) == {0: -12, 32: -12, 128: -12}
    assert heights(0, 72, 80, 88, 128) == {0: -12, 72: -12, 80: -27, 88: -42, 128: -12}


def test_notes_at_the_ends_stay_off_the_figures_of_the_axes() -> None:
    values = [{"series": "sdpa", "x": x, "value": 1.0, "low": 1.0, "high": 1.0, "about": "", "note": f"{x}: +30 %"}
              for x in (56, 57, 64, 71, 72)]  # fmt: skip
    wide = [{"series": "sdpa", "x": x, "value": x} for x in (56, 72)]
    root = ET.fromstring(svg(lines(values, "head_dim", "us", zero=False, steps=wide, behind="computed width")))
    texts = {text.text: text for text in root.iter("{http://www.w3.org/2000/svg}text")}
    ends = {}
    for x in (56, 57, 64, 71, 72):
        text = texts[f"{x}: +30 %"]
        at = float(re.findall(r"translate\(([\d.-]+)", text.get("transform", ""))[0])
        ends[x] = text.get("text-anchor"), at
    assert {x: anchor for x, (anchor, _) in ends.items()} == {
        56: "start", 57: "start", 64: "middle", 71: "end", 72: "end"
    }  # fmt: skip
    # Within the picture's 420 pixels, at whose ends the axes stand.
    assert all(0 < at < 20 for _, at in (ends[56], ends[57])) and all(400 < at < 420 for _, at in (ends[71], ends[72]))


def test_notes_of_points_at_different_heights_do_not_touch() -> None:
    """As drawn: the second point lies lower by about a note's height, so that a row higher would be the same place."""
    values = [{"series": "sdpa", "x": x, "value": us, "low": us, "high": us, "about": "",
               "note": f"{x}: +30 %" if us > 1 else None}
              for x, us in ((760, 1.0), (767, 2.0), (769, 1.95), (776, 1.0))]  # fmt: skip
    root = ET.fromstring(svg(lines(values, "width", "us", zero=False)))
    texts = {text.text: text.get("transform", "") for text in root.iter("{http://www.w3.org/2000/svg}text")}
    one, other = (float(re.findall(r",([\d.-]+)\)", texts[f"{x}: +30 %"])[0]) for x in (767, 769))
    assert abs(one - other) >= 14


# ---- doubt -------------------------------------------------------------------------------------------
BUSY = "other processes kept 1.4 of 2 CPUs busy"


def doubted_at_16(record: dict[str, Any]) -> None:
    """What stands beside every other width of sdpa is in doubt, and nothing else of the suite alignment."""
    wide(record)
    record["validity"] = {"verdict": "valid", "reasons": []}
    if record["suite"] == "alignment" and record["op"] == "attention" and record["problem"]["head_dim"] == 16:
        record["validity"] = {"verdict": "suspect", "reasons": [BUSY]}


def test_a_cliff_that_rests_on_a_doubted_neighbour_says_so(tmp_path: Path) -> None:
    one = page("alignment", changed_run(tmp_path / "run", doubted_at_16))
    said = {part.question: part.text for part in one.parts if isinstance(part, Said)}
    assert said["Cliff at head_dim 17:"] == (
        "sdpa ! +88 % (+88.2 to +88.2 %), per useful FLOP beside 16 (unpaired intervals). "
        f"In doubt: {BUSY} (sdpa)."
    )  # fmt: skip
    costs = next(part for part in one.parts if isinstance(part, Table) and "What a width costs" in part.caption)
    assert "! is in doubt" in costs.caption
    assert {line[0] for line in costs.rows if line[2] == "16"} == {"sdpa !"}
    assert "fused_qkv" in {line[0] for line in costs.rows}


def test_legend_caption_and_table_of_a_line_agree_on_what_is_in_doubt(tmp_path: Path) -> None:
    def one_point(record: dict[str, Any]) -> None:
        if record["suite"] == "alignment" and record["problem"]["head_dim"] in (8, 15):
            record["kernel"] = "eager"
        doubtful = record["suite"] == "alignment" and record["problem"]["head_dim"] == 8
        record["validity"] = {"verdict": "suspect" if doubtful else "valid", "reasons": [BUSY] if doubtful else []}

    drawn = charts(page("alignment", changed_run(tmp_path / "run", one_point)))
    chart = next(c for c in drawn if "attention (alignment)" in c.title)
    # A line is marked for one of its points; the table says which.
    texts = {text.text for text in ET.fromstring(svg(chart.picture)).iter("{http://www.w3.org/2000/svg}text")}
    assert {"eager !", "sdpa"} <= texts and not {"eager", "sdpa !"} & texts
    doubted = [row for row in chart.data.rows if row[0].endswith(" !")]
    assert [(row[0], row[1]) for row in doubted] == [("eager !", "8")]
    assert doubted[0][chart.data.columns.index("validity")] == f"suspect: {BUSY}"
    assert f" 1 of {len(chart.data.rows)} points is in doubt" in chart.about
    # Where none is in doubt, nothing speaks of it.
    sure = next(c for c in drawn if "qkv_projection (alignment)" in c.title)
    assert "in doubt" not in sure.about and not any("!" in mark["series"] for mark in marks(sure, "point"))


def test_every_answer_that_rests_on_doubted_times_says_so(tmp_path: Path) -> None:
    def busy(record: dict[str, Any]) -> None:
        fused = record["suite"] == "projection" and record["kernel"] == "fused_each"
        record["validity"] = {"verdict": "suspect" if fused else "valid", "reasons": [BUSY] if fused else []}

    run = changed_run(tmp_path / "run", busy)
    others = next(part for part in page("answers", run).parts if isinstance(part, Table))
    each = [text for (text,) in others.rows if "one fused matmul for each of" in text or "of the time of three" in text]
    assert len(each) == 8 and all(text.endswith(f". In doubt: {BUSY}.") for text in each)
    assert not any("In doubt" in text for (text,) in others.rows if text not in each)


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


# ---- energy and clocks -------------------------------------------------------------------------------
@pytest.fixture
def h200(tmp_path: Path) -> Path:
    """The first Group ran cooler and at a steady clock."""

    def change(record: dict[str, Any]) -> None:
        on_h200(record)
        if record["suite"] != "projection" and record["samples_us"]:
            record["counters"] |= {"gpu_sm_clock_min_mhz": 1980, "gpu_temperature_celsius": 62}

    return changed_run(tmp_path / "h200", change, {"device": "cuda", "gpu": {"name": "NVIDIA H200"}})


def test_clocks_power_and_temperature_are_drawn_over_time(h200: Path) -> None:
    drawn = {chart.name: chart for chart in charts(page("energy", h200))}
    clock, heat = drawn["energy-1-clock"], drawn["energy-1-temperature"]
    records = [r for r in read_run(h200).records if r.samples_us]
    points = marks(clock, "point")
    assert {(p["value"], p["low"], p["high"]) for p in points} == {(1980, 1755, 1980), (1980, 1980, 1980)}
    assert (
        any("SM clock 1980 MHz (lowest 1755)" in p["about"] for p in points)
        and "At most, says the machine: SM clock 1980" in clock.about
    )
    assert {p["value"] for p in marks(heat, "point")} == {61, 62}
    # What never changed is said, not drawn.
    said = [part for part in page("energy", h200).parts if isinstance(part, str)]
    assert "Power: GPU power 612.5 W throughout. At most, says the machine: GPU power 700 W." in said
    assert "Memory clock: memory clock 3201 MHz throughout." in said
    # A point a Group, in the seconds since the Run began.
    groups = {(r.suite, r.problem.label()) for r in records}
    assert len(points) == len(groups) == len(clock.data.rows)
    assert {float(row[0]) for row in clock.data.rows} == {0.0}


@pytest.mark.parametrize("started_at", ["", "2026-01-02T03:04:05"])
def test_a_time_that_is_none_is_left_out(tmp_path: Path, started_at: str) -> None:
    def timeless(record: dict[str, Any]) -> None:
        on_h200(record)
        record["started_at"] = started_at  # without a zone it can't be set beside the Run's

    run = changed_run(tmp_path / "run", timeless, {"device": "cuda", "gpu": {"name": "NVIDIA H200"}})
    assert not [chart for chart in charts(page("energy", run)) if chart.name.endswith("-clock")]


def test_time_counts_from_the_start_of_the_run(tmp_path: Path) -> None:
    def later(record: dict[str, Any]) -> None:
        on_h200(record)
        record["started_at"] = "2026-01-31T12:01:30.500+00:00"
        record["counters"]["gpu_power_watts"] = 300.0 + record["problem"]["seq_len"]

    run = changed_run(tmp_path / "run", later, started_at="2026-01-31T12:00:00.000+00:00")
    assert {p["x"] for p in marks(charts(page("energy", run))[0], "point")} == {90.5}


def test_energy_of_a_call_has_its_bound_power_and_useful_work(h200: Path) -> None:
    one = page("energy", h200)
    chart = next(c for c in charts(one) if c.name == "energy-per-call-1-1")
    bar = marks(chart, "bar")[0]
    assert (bar["value"], bar["low"], bar["high"]) == (250.0, 240.0, 260.0)
    row = chart.data.rows[0]
    assert row[1:6] == ("250 mJ", "4.0 %", "640 W", "0.820 TFLOP/J", "12800")
    assert "no confidence interval" in chart.about
    # What has no figure says why.
    told = next(part for part in one.parts if isinstance(part, Table) and "could not be told" in part.caption)
    assert ("eager: no call ended within the window",) in told.rows


def test_where_nothing_was_counted_the_page_is_left_out_with_the_reason(tmp_path: Path) -> None:
    assert "no clock, power, temperature or energy was counted" in str(page("energy", RUN).absent)

    def cpu(record: dict[str, Any]) -> None:
        record["counters"] = {"interval_s": 2.0, "cpu_clock_mhz": None, "cpu_clock_mhz_reason": "no cpufreq here"}

    assert str(page("energy", changed_run(tmp_path / "run", cpu)).absent).endswith(": no cpufreq here")


def test_a_cpu_with_sensors_has_the_page_too(tmp_path: Path) -> None:
    def cpu(record: dict[str, Any]) -> None:
        length = record["problem"]["seq_len"]
        record["counters"] = {"interval_s": 2.0, "cpu_clock_mhz": 3400.0 + length, "cpu_max_clock_mhz": 4000.0,
                              "cpu_package_joules": 50.0 + length, "cpu_temperature_celsius": None}  # fmt: skip

    one = page("energy", changed_run(tmp_path / "run", cpu))
    assert [c.name for c in charts(one)] == ["energy-1-clock", "energy-1-energy-of-all-cpu-packages"]
    assert "CPU clock 4000 MHz" in charts(one)[0].about


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
