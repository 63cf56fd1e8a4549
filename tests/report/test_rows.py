"""Rows and answers from Records whose numbers were chosen by hand."""

from andrea_bench import Problem
from andrea_bench.record import Record, Validity, cell_id
from andrea_bench.report.answers import answers, misalignments
from andrea_bench.report.rows import group_rows, ratio, varying_fields

NOW = "2026-01-02T03:04:05.678+00:00"
BASE = Problem(d_model=768, n_head=12, seq_len=128)


def make(suite: str, op: str, kernel: str, samples: list[float], problem: Problem = BASE, **changes: object) -> Record:
    n = len(samples)
    fields = {
        "cell_id": cell_id(suite, op, kernel, problem), "suite": suite, "op": op, "kernel": kernel, "problem": problem,
        "device": "cpu", "status": "ok", "samples_us": samples, "timing_mode": "host_wall", "cache": "warm",
        "order": list(range(n)), "block": [0] * n, "round": list(range(n)),
        "flops": problem.flops(op), "min_bytes": problem.min_bytes(op), "started_at": NOW, **changes,
    }  # fmt: skip
    return Record(**fields)  # type: ignore[arg-type]


def test_figures_follow_from_samples() -> None:
    record = make("attention", "attention", "eager", [1.0, 2.0, 3.0, 4.0, 100.0])
    (group,) = group_rows([record])
    (row,) = group.rows
    assert row.median_us == 3.0
    # 2 * 12 * 64 * 128 * 128 operations of causal attention in 3 microseconds.
    assert row.tflops == 2 * 12 * 64 * 128 * 128 / 3.0 / 1e6
    # Q, K, V and O, 12 * 64 * 128 values of 4 bytes each.
    assert row.gb_per_s == 4 * 12 * 64 * 128 * 4 / 3.0 / 1e3


def test_a_failed_cell_is_never_zero_and_never_the_fastest() -> None:
    failed = make("attention", "attention", "sdpa", [], status="out_of_memory", reason="too large", timing_mode=None)
    (group,) = group_rows([make("attention", "attention", "eager", [1.0, 2.0]), failed])
    row = group.rows[1]
    assert row.median_us is row.tflops is row.gb_per_s is row.to_baseline is None
    assert group.row("sdpa") is None
    assert answers([group]) == []


def test_a_ratio_pairs_samples_of_equal_block_and_round() -> None:
    # Drift of a factor of ten within the group leaves the paired ratio at exactly one half.
    slow = make("projection", "qkv_projection", "per_head_loop", [10.0, 20.0, 50.0, 100.0, 70.0, 30.0])
    fast = make(
        "projection", "qkv_projection", "fused_qkv", [50.0, 5.0, 10.0, 25.0, 35.0, 15.0], round=[3, 0, 1, 2, 4, 5]
    )
    (group,) = group_rows([slow, fast])
    paired = ratio(group.rows[1], group.rows[0])
    assert paired is not None
    assert abs(paired.ratio - 0.5) < 1e-12
    assert paired.n == 6
    unpaired = make("projection", "qkv_projection", "fused_qkv", [1.0, 2.0], block=[1, 1])
    (other,) = group_rows([slow, unpaired])
    assert other.rows[1].to_baseline is None


def test_what_does_other_work_has_no_ratio_to_the_baseline() -> None:
    whole = make("layout", "layout", "attention_strided", [10.0, 11.0], flops=8, min_bytes=4)
    like = make("layout", "layout", "attention_contiguous", [5.0, 5.5], flops=8, min_bytes=4)
    # Q K^T has the FLOPs of a causal attention, and writes the scores beside.
    scores = make("layout", "layout", "qk_strided", [1.0, 1.1], flops=8, min_bytes=20)
    (group,) = group_rows([whole, like, scores])
    by_kernel = {row.record.kernel: row.to_baseline for row in group.rows}
    assert by_kernel["attention_contiguous"] is not None
    assert by_kernel["qk_strided"] is None


def test_the_answer_says_machine_sizes_and_interval() -> None:
    records = [
        make("projection", "qkv_projection", "per_head_loop", [10.0 + i / 10 for i in range(12)]),
        make("projection", "qkv_projection", "fused_qkv", [5.0 + i / 20 for i in range(12)]),
    ]
    said = [a for a in answers(group_rows(records)) if a.against == "per_head_loop"]
    assert len(said) == 1
    assert said[0].text.startswith("on this CPU, float32, batch 1, seq_len 128: ")
    assert "0.50 (0.50 to 0.50)" in said[0].text
    assert "12" in said[0].text
    assert said[0].ratio == 0.5
    assert len(said[0].cell_ids) == 2


def test_misalignment_is_per_useful_flop() -> None:
    records = [
        make("alignment", "attention", "eager", [64.0] * 12, BASE),
        make(
            "alignment", "attention", "eager", [144.0] * 12, Problem(n_head=12, head_dim=72, d_model=768, seq_len=128)
        ),
        make("alignment", "attention", "eager", [63.0] * 12, Problem(n_head=12, head_dim=63, d_model=768, seq_len=128)),
    ]
    found = {one.width: one for one in misalignments(group_rows(records))}
    assert found.keys() == {63, 72}
    assert found[72].base_width == 64
    assert abs(found[72].cost - 2.0) < 1e-12
    assert abs(found[63].cost - 1.0) < 1e-12
    (said,) = [a for a in answers(group_rows(records)) if a.suite == "alignment"]
    assert "takes 144 us at head_dim 72 and 64.0 us at 64, 125.0 % more time for 12.5 % more useful work" in said.text
    assert said.ratio == found[72].cost
    assert said.doubts == []


def test_an_answer_carries_the_doubts_of_its_times() -> None:
    busy = Validity(verdict="suspect", reasons=["other processes kept 1.5 of 2 CPUs busy"])
    sizes = {w: BASE.replace(head_dim=w) for w in (64, 72)}
    quiet = make("alignment", "attention", "eager", [64.0] * 12, sizes[64])
    slowed = make("alignment", "attention", "eager", [144.0] * 12, sizes[72], validity=busy)
    (said,) = answers(group_rows([quiet, slowed]))
    assert said.doubts == busy.reasons


def test_each_width_stands_beside_its_own_neighbours() -> None:
    widths = (48, 56, 63, 64, 72, 120, 127, 128)
    records = [make("alignment", "attention", "eager", [float(w)] * 12, BASE.replace(head_dim=w)) for w in widths]
    found = {one.width: one.base_width for one in misalignments(group_rows(records))}
    assert found == {56: 64, 63: 64, 72: 64, 120: 128, 127: 128}


def test_sentences_of_several_splits_are_told_apart() -> None:
    records = []
    for n_head in (8, 12):
        problem = Problem(d_model=768, n_head=n_head, seq_len=128)
        for kernel, us in (("per_head_loop", 10.0), ("fused_qkv", 5.0)):
            records.append(make("projection", "qkv_projection", kernel, [us + i / 10 for i in range(12)], problem))
    said = [a.text for a in answers(group_rows(records)) if a.against == "per_head_loop"]
    assert len(said) == 2
    assert "seq_len 128, n_head 8, n_kv_head 8, head_dim 96: " in said[0]
    assert "seq_len 128, n_head 12, n_kv_head 12, head_dim 64: " in said[1]


def test_layer_whole_beside_the_sum() -> None:
    problem = BASE.replace(n_layer=12)
    records = [
        make("layer", "qkv_projection", "fused_qkv", [40.0] * 6, problem),
        make("layer", "layout", "split_heads", [5.0] * 6, problem),
        make("layer", "attention", "sdpa", [45.0] * 6, problem),
        make("layer", "output_projection", "concat_matmul", [10.0] * 6, problem),
        make("layer", "layer", "five_steps", [110.0] * 6, problem),
    ]
    said = next(a for a in answers(group_rows(records)) if a.kernel == "five_steps" and a.against is None)
    assert "10.0 % more than the sum of its stages (100 us)" in said.text
    # 128 tokens in 12 layers of 110 microseconds each.
    assert f"{128 / (110e-6 * 12):.0f} tokens per second" in said.text


def test_the_copy_pays_from_the_first_length_at_which_it_keeps_paying() -> None:
    records = []
    for seq_len, copying in ((128, 12.0), (256, 11.0), (512, 9.0), (1024, 8.0)):
        problem = Problem(d_model=768, n_head=12, seq_len=seq_len)
        wobble = [1 + i / 1000 for i in range(12)]
        records.append(
            make("layout", "layout", "attention_strided", [10.0 * w for w in wobble], problem, flops=1, min_bytes=1)
        )
        records.append(
            make(
                "layout",
                "layout",
                "attention_copy_then_contiguous",
                [copying * w for w in wobble],
                problem,
                flops=1,
                min_bytes=1,
            )
        )
    said = [a.text for a in answers(group_rows(records)) if "pays" in a.text]
    assert len(said) == 1
    assert "pays from seq_len 512 on (tried: 128, 256, 512, 1024); at 512 it takes 0.90" in said[0]


def test_varying_fields() -> None:
    assert varying_fields([BASE, BASE.replace(batch=2, kv_len=7)]) == ["batch", "kv_len"]
