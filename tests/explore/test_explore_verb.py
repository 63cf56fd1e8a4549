"""The verb `explore`, from its command line to its JSON."""

import json
from pathlib import Path

import msgspec
import pytest

from andrea_bench.cli.main import main
from andrea_bench.inspect import Facts
from andrea_bench.predict import cell, ratio
from andrea_bench.problem import Problem
from andrea_bench.record import Record, RunHead
from andrea_bench.store import RunWriter

ON_4090 = ["explore", "--gpu", "rtx_4090", "--iso", "d_model=768", "-a", "seq_len=1024", "-a", "batch=8"]


def ask(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    return captured.err


def write_run(folder: Path, gpu: str | None, times_us: dict[int, float], op: str = "layer") -> Path:
    """A Run of the layer of 768 in splits n_head -> time."""
    environment = {"gpu": {"name": gpu}} if gpu else {}
    head = RunHead(started_at="2026-01-01T00:00:00Z", arguments=[], protocol={}, seed=1, environment=environment)
    with RunWriter.create(folder, head) as writer:
        for n_head, time_us in times_us.items():
            problem = Problem(
                batch=8, seq_len=1024, d_model=768, n_head=n_head, n_layer=12, dtype="bfloat16" if gpu else "float32"
            )
            writer.append([
                Record(cell_id=f"{n_head}", suite="layer", op=op, kernel="five_steps_strided", problem=problem,
                       device="cuda", status="ok", samples_us=[time_us * f for f in (0.99, 1.0, 1.01) * 7],
                       timing_mode="cuda_event", cache="warm", order=list(range(21)), block=[0] * 21,
                       round=list(range(21)), flops=problem.flops(), min_bytes=1, started_at="2026-01-01T00:00:00Z")
            ])  # fmt: skip
    return folder


def test_figures_are_those_of_the_model_and_ties_those_of_its_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    (setting,) = ask(capsys, *ON_4090)["settings"]
    ranked = [one for one in setting["choices"] if one["rank"]]
    predictions = {}
    for one in ranked:
        problem = msgspec.convert(one["problem"], Problem)
        predictions[one["split"]] = predicted = cell("rtx_4090", problem, op="layer", kernel="sdpa")
        assert one["layer"]["how"] == "predicted"
        assert one["layer"]["time_us"] == pytest.approx(predicted.time_us)
        assert one["tokens_per_s"] == pytest.approx(8 * 1024 / (12 * predicted.time_us) * 1e6)
    assert all(one["parameters"] == 12 * 4 * 768 * 768 for one in ranked)
    assert all(one["kv_cache_bytes_per_token"] == 12 * 2 * 768 * 2 for one in ranked)
    for one in ranked:
        mine = predictions[one["split"]]
        assert one["rank"] == 1 + sum(ratio(mine, other).low > 1 for other in predictions.values())
    order = [(one["rank"], one["layer"]["time_us"]) for one in ranked]
    assert order == sorted(order) and {one["split"] for one in ranked} >= {"12 x 64", "6 x 128", "24 x 32"}


def test_what_no_kernel_does_is_left_out_with_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    (setting,) = ask(capsys, *ON_4090, "--kernel", "sdpa_flash")["settings"]
    wide = next(one for one in setting["choices"] if one["split"] == "2 x 384")
    assert wide["rank"] is None and "up to 256" in wide["reason"] and wide["layer"] is None


def test_sentences_hold_the_numbers_that_they_say(capsys: pytest.CaptureFixture[str]) -> None:
    for sentence in ask(capsys, *ON_4090)["settings"][0]["sentences"]:
        if sentence["layer"] is not None:
            value = sentence["layer"]["value"]
            assert f"{value:.2f}" in sentence["text"] or f"{abs(value - 1):.0%}" in sentence["text"]
            assert sentence["how"] == "predicted"


def test_gpus_stand_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ON_4090, "--gpu", "h200_sxm"]) == 0
    out = capsys.readouterr().out
    assert "rtx_4090: layer (rank)" in out and "h200_sxm: layer (rank)" in out
    assert max(map(len, out.splitlines())) <= 80


def test_energy_is_the_boards_limit_times_the_time(capsys: pytest.CaptureFixture[str]) -> None:
    (setting,) = ask(capsys, *ON_4090, "--objective", "energy")["settings"]
    best = setting["choices"][0]
    assert best["energy_how"] == "predicted"
    assert best["energy_joules"] == pytest.approx(450 * best["layer"]["time_us"] * 1e-6)  # 450 W


@pytest.mark.parametrize(
    ("d_model", "n_head", "remainder", "row_bytes", "width"),
    [(3200, 32, "100 % 8 = 4", 200, 128), (520, 8, "65 % 8 = 1", 130, 96), (1020, 17, "60 % 8 = 4", 120, 64)],
)
def test_heads_off_the_usual_list_are_ranked_and_called_misaligned(
    d_model: int, n_head: int, remainder: str, row_bytes: int, width: int, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ["-a", f"d_model={d_model}", "-a", f"n_head={n_head}", "-a", "seq_len=512"]
    (setting,) = ask(capsys, "explore", "--gpu", "rtx_4090", *sizes, "--own", f"{n_head}x{d_model // n_head}")[
        "settings"
    ]
    own = next(one for one in setting["choices"] if one["split"] == f"{n_head} x {d_model // n_head}")
    assert own["rank"] == 1 and own["problem"]["head_dim"] == d_model // n_head
    assert remainder in own["alignment"] and f"rows of {row_bytes} bytes" in own["alignment"]
    assert any(f"is {own['alignment']}; computed {width} wide" in one["text"] for one in setting["sentences"])
    # A backend that refuses such a head says so, as the reason of what is not ranked.
    assert "multiple of 8" in refused(capsys, "explore", "--gpu", "rtx_4090", *sizes, "--kernel", "sdpa_cudnn")


def test_the_smallest_cache_has_one_kv_head(capsys: pytest.CaptureFixture[str]) -> None:
    usual = ["--where", "64 <= head_dim <= 128", "--objective", "kv_cache"]
    (setting,) = ask(capsys, *ON_4090, *usual)["settings"]
    assert [one["split"] for one in setting["choices"][:2]] == ["12:1 x 64", "8:1 x 96"]
    assert setting["choices"][0]["kv_cache_bytes_per_token"] == 12 * 2 * 1 * 64 * 2  # layers, K and V, heads, bytes
    own = next(one for one in setting["choices"] if one["split"] == "12 x 64")
    assert own["kv_cache_bytes_per_token"] == 12 * 12 * 2 * 64 * 2 and own["rank"] > 1


def test_energy_says_on_what_it_rests(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ON_4090, "--objective", "energy"]) == 0
    assert "predicted energy is the board's power limit, 450 W" in " ".join(capsys.readouterr().out.split())
    assert main([*ON_4090]) == 0
    assert "power limit" not in capsys.readouterr().out


def test_tensor_parallelism_divides_heads_work_and_memory(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = ask(capsys, *ON_4090, "--tp", "1,4", "--where", "n_head == 12")["settings"]
    assert (one["tensor_parallel"], four["tensor_parallel"]) == (1, 4)
    whole, share = one["choices"][0], four["choices"][0]
    assert (share["problem"]["n_head"], share["problem"]["d_model"]) == (3, 768)
    for name in ("parameters", "kv_cache_bytes_per_token", "memory_bytes"):
        assert 4 * share[name] == whole[name]
    assert share["layer"]["time_us"] < whole["layer"]["time_us"]
    assert "communication between the GPUs is not counted" in four["assumed"]
    (five,) = ask(capsys, *ON_4090, "--tp", "8")["settings"]
    assert ["12 x 64", "n_head 12 is not divisible by --tp 8"] in five["left_out"]


def test_a_model_is_taken_as_it_is_and_better_splits_of_its_parameters_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    long = ["-a", "batch=8", "-a", "seq_len=8192"]
    (setting,) = ask(capsys, "explore", "--gpu", "h200_sxm", "--model", "andrea-480m", *long)["settings"]
    assert setting["own"] == "24 x 64"
    own = next(one for one in setting["choices"] if one["split"] == "24 x 64")
    assert {one["parameters"] for one in setting["choices"]} == {own["parameters"]}
    better = next(one for one in setting["sentences"] if one["text"].startswith("nearest better neighbour"))
    chosen = next(one for one in setting["choices"] if one["split"] == better["split"])
    assert better["layer"]["high"] < 1 and chosen["rank"] < own["rank"]


def test_facts_stand_beside_the_splits(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def survey(kernels: list, problems: list, gpus: list, options: object) -> list[Facts]:
        (kernel,), (gpu,) = kernels, gpus
        return [
            Facts(kernel=kernel.name, gpu=gpu, compute_capability="8.9", problem=problem, registers_per_thread=168,
                  spill_store_bytes=48 if problem.head_dim == 96 else 0, async_copy_bytes={"8": 4}, bound_by="tensor")
            for problem in problems
        ]  # fmt: skip

    monkeypatch.setattr("andrea_bench.explore.compiled.survey", survey)
    (setting,) = ask(capsys, *ON_4090, "--compiled", "--where", "8 <= n_head <= 12")["settings"]
    made = {one["split"]: one["compiled"][0] for one in setting["choices"]}
    assert made["12 x 64"]["kernel"] == "triton_exact" and made["8 x 96"]["spill_store_bytes"] == 48
    wider = next(one for one in setting["sentences"] if one["text"].startswith("8 x 96 would"))
    assert "loads of 8 bytes in triton_exact (compiled), 48 bytes spilled in triton_exact (compiled)" in wider["text"]


def test_splits_are_measured_here(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="measuring needs torch")
    monkeypatch.setattr("andrea_bench.cli.explore.MEASURED_SECONDS", 0.02)
    here = ["explore", "--measure", "--device", "cpu", "--out", str(tmp_path / "run"), "-a", "seq_len=16"]
    (setting,) = ask(capsys, *here, "--iso", "d_model=64", "--where", "2 <= n_head <= 4")["settings"]
    assert {one["split"] for one in setting["choices"]} == {"2 x 32", "4 x 16"}
    for one in setting["choices"]:
        parts = ("layer", "attention", "qkv_projection", "output_projection")
        assert {one[part]["how"] for part in parts} == {"measured"}
        assert one["layer"]["prediction"] is None and one["layer"]["percent_of_bound"] is None
    assert (tmp_path / "run" / "records.jsonl").is_file()


def test_a_wide_search_ends_within_its_budget_coarse_first(capsys: pytest.CaptureFixture[str]) -> None:
    wide = ["explore", "--gpu", "rtx_4090", "-a", "d_model=768", "-a", "n_head=1:24:1", "-a", "head_dim=16:128:8"]
    (some,) = ask(capsys, *wide, "--budget", "0.005")["settings"]
    (every,) = ask(capsys, *wide, "--budget", "60")["settings"]
    assert 0 < len(some["choices"]) < len(every["choices"]) == 24 * 15
    assert len(some["choices"]) + sum("not reached" in why for _, why in some["left_out"]) == 24 * 15
    assert {one["problem"]["head_dim"] % 64 for one in some["choices"][:1]} == {0}


def test_a_short_budget_looks_at_coarse_splits_and_names_the_rest(capsys: pytest.CaptureFixture[str]) -> None:
    (setting,) = ask(capsys, *ON_4090, "--budget", "1e-9")["settings"]
    assert [one["split"] for one in setting["choices"]] == ["3 x 256"]
    assert ["12 x 64", "not reached within --budget 1e-09"] in setting["left_out"]


def test_measured_times_take_the_place_of_predicted_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", "NVIDIA GeForce RTX 4090", {12: 400.0, 8: 390.0, 6: 500.0})
    (setting,) = ask(capsys, *ON_4090, "--run", str(run), "--where", "6 <= n_head <= 12")["settings"]
    assert [(one["split"], one["rank"], one["layer"]["how"]) for one in setting["choices"]] == [
        ("8 x 96", 1, "measured"), ("12 x 64", 2, "measured"), ("6 x 128", 3, "measured"),
    ]  # fmt: skip
    assert setting["choices"][0]["layer"]["prediction"]["gpu"] == "rtx_4090"


def test_a_rate_above_the_peak_is_implausible_and_never_wins(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", "NVIDIA GeForce RTX 4090", {12: 400.0, 8: 1.0})
    (setting,) = ask(capsys, *ON_4090, "--run", str(run), "--where", "8 <= n_head <= 12")["settings"]
    assert [(one["split"], one["rank"]) for one in setting["choices"]] == [("12 x 64", 1), ("8 x 96", None)]
    assert "implausible" in setting["choices"][1]["reason"]


def test_a_run_of_a_cpu_ranks_what_it_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = write_run(tmp_path / "run", None, {12: 400.0, 8: 300.0})
    splits = ["--iso", "d_model=768", "-a", "batch=8", "--where", "6 <= n_head <= 12"]
    (setting,) = ask(capsys, "explore", "--run", str(run), *splits)["settings"]
    assert (setting["gpu"], setting["device"]) == (None, "cpu")
    assert [(one["split"], one["rank"], one["reason"]) for one in setting["choices"]] == [
        ("8 x 96", 1, None), ("12 x 64", 2, None), ("6 x 128", None, "not measured"),
    ]  # fmt: skip


def test_a_run_of_another_device_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = write_run(tmp_path / "h100", "NVIDIA H100 80GB HBM3", {12: 400.0})
    assert "was measured on NVIDIA H100 80GB HBM3, not on rtx_4090" in refused(capsys, *ON_4090, "--run", str(other))
    cpu = write_run(tmp_path / "cpu", None, {12: 400.0})
    assert "was measured on cpu, not on rtx_4090" in refused(capsys, *ON_4090, "--fit-from", str(cpu))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "rtx_4091", "--iso", "d_model=768"], "unknown GPU 'rtx_4091'; closest: rtx_4090"),
        (["--gpu", "sm_90", "--iso", "d_model=768"], "compiler target"),
        (["--gpu", "rtx_4090", "--model", "falcon-7"], "unknown model"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "--tp", "5"], "no legal split with --tp 5"),
        (["--gpu", "rtx_4090", "-a", "n_head=71", "-a", "head_dim=64", "--tp", "4"], "n_head 71 is not divisible"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "--tp", "two"], "--tp two"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "--kernel", "nope"], "unknown attention kernel"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "--budget", "0"], "--budget 0"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "-a", "batch=100000000"], "no split can be ranked on rtx_4090"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "--run", "a", "--measure"], "give one"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "--where", "n_head in (8,)"], "n_head in (8,)"),
        (["--gpu", "rtx_4090", "--iso", "d_model=768", "--run", "/none"], "there is no such Run"),
    ],
)
def test_bad_input_is_one_line(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in refused(capsys, "explore", *arguments)


def test_what_is_measured_here_is_no_other_gpu(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    asked = ["--measure", "--device", "cpu", "--out", str(tmp_path / "run")]
    assert "--measure measures on cpu, not on rtx_4090: leave --gpu away" in refused(capsys, *ON_4090, *asked)
    assert not (tmp_path / "run").exists()


def test_training_keeps_no_cache(capsys: pytest.CaptureFixture[str]) -> None:
    for direction, cached in (("forward", True), ("forward_backward", False)):
        assert main([*ON_4090, "-a", f"direction={direction}"]) == 0
        told = capsys.readouterr().out
        assert ("KV cache a token" in told) == cached and "parameters 28.31 M" in told
