"""The page of alignment: computed widths, cliffs and their notes, and what of it is in doubt."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

from made_up import RUN, changed_run, wide
from page_parts import charts, marks, page

from andrea_bench.report.charts import lines, svg
from andrea_bench.report.content import CompiledFacts, Said, Table
from andrea_bench.store import read_run


# ---- alignment ---------------------------------------------------------------------------------------
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
    chart = next(c for c in charts(one) if "(alignment)" in c.title)
    assert "17: +88 % !" in [mark["note"] for mark in marks(chart, "text")]
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
