"""`calibrate` for real, in little time: what it stores, and what a gate makes of it."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import pytest

from andrea_bench.calibration import default_file, read_calibration
from andrea_bench.cli.main import main
from andrea_bench.environment import environment

torch = pytest.importorskip("torch", reason="calibrating measures with torch")

from andrea_bench import noise  # noqa: E402
from andrea_bench.measure import ceilings  # noqa: E402

CELLS = ["projection", "-a", "seq_len=16", "-a", "n_head=2", "-a", "head_dim=16", "--kernel", "fused_qkv",
         "--device", "cpu"]  # fmt: skip


@pytest.fixture(autouse=True)
def little_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Small matmuls, short tries and few replays; a cache folder of its own; this process keeps its threads."""
    monkeypatch.setattr(ceilings, "CPU_SIZES", (64, 128))
    monkeypatch.setattr(ceilings, "CEILING_SECONDS", 0.05)
    monkeypatch.setattr(ceilings, "last_level_cache_bytes", lambda: 2**20)
    monkeypatch.setattr(noise, "REPLAYED_GATES", 10)
    monkeypatch.setattr(noise, "FEWEST_PAIRS", 2)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("GITHUB_ACTIONS", "TF_BUILD", "TEAMCITY_VERSION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def gate(capsys: pytest.CaptureFixture[str], allowance: str) -> tuple[str, list[str]]:
    """What gate says of the Runs base and head: its text on one line, and the warnings of its document."""
    arguments = ["gate", "base", "head", "--max-slowdown", allowance]
    capsys.readouterr()
    main(arguments)
    text = " ".join(capsys.readouterr().out.split())
    main([*arguments, "--json"])
    return text, json.loads(capsys.readouterr().out)["warnings"]


def test_from_calibrate_to_gate(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", *CELLS, "--budget", "1s", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    stored = json.loads(default_file().read_text())
    assert printed == stored

    # When, and on which machine.
    age = datetime.now(UTC) - datetime.fromisoformat(stored["measured_at"])
    assert timedelta(seconds=-1) <= age < timedelta(hours=1)
    assert stored["device"] == "cpu" and stored["environment"]["cpu"] == environment("cpu")["cpu"]

    best = stored["ceilings"]
    assert set(best["matmul_tflops"]) <= {"float32", "bfloat16", "float16"} and best["threads"] == 1
    # No core does a million times less, or a thousand times more, than 10 GFLOP/s; nor its memory, of 10 GB/s.
    assert all(1e-8 < tflops < 10 for tflops in best["matmul_tflops"].values()) and best["matmul_tflops"]["float32"]
    assert 1e-5 < best["copy_gb_per_s"] < 1e4

    assert set(stored["suites"]) == {"projection"}
    found = stored["suites"]["projection"]
    assert found["pairs"] >= 2 and found["gate_pairs"] == max(2, int(120 / found["pair_seconds"]))
    assert [cell["kernel"] for cell in found["cells"]] == ["per_head_loop", "fused_qkv"]
    for cell in found["cells"]:
        assert 1 <= len(cell["log_ratios"]) <= found["pairs"] and cell["median_us"] > 0
    spreads = [1.4826 * median(abs(x) for x in cell["log_ratios"]) for cell in found["cells"]]
    assert found["noise"] == pytest.approx(median(spreads)) and found["quantile"] == 0.05
    assert list(found["false_alarm_rate"]) == ["0.5%", "1%", "2%", "3%", "5%", "10%", "20%"]
    assert all(0 <= rate <= 1 for rate in found["false_alarm_rate"].values())
    assert found["smallest_allowance"] in (None, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2)

    # No calibration can promise 0.1 %, which it does not try; the gate's output says so.
    for run, seed in (("base", "1"), ("head", "2")):
        assert main(["sweep", *CELLS, "--fake-clock", "--seed", seed, "--out", run]) == 0
    tight = "an allowance of 0.1 % can't be met in suite projection on this machine"
    text, warnings = gate(capsys, "0.1%")
    assert tight in text and [line.startswith(tight) for line in warnings] == [True]
    assert f"{100 * found['noise']:.2g} % between two processes on {stored['measured_at'][:10]}" in text

    found["smallest_allowance"] = 0.02
    default_file().write_text(json.dumps(stored))
    assert gate(capsys, "2%")[1] == []
    text, (line,) = gate(capsys, "1.9%")
    assert line.endswith("2 % can be, in 120 s of ab") and line in text


def test_what_it_shows(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In words, of a suite whose noise is given; written where --out says, into a folder that is made."""
    of_cell = noise.CellNoise(cell_id="x", kernel="k", problem="p", median_us=100.0, log_ratios=[0.012, -0.011, 0.01])
    given = noise.SuiteNoise(
        pairs=9, gate_pairs=20, pair_seconds=6.04, noise=0.0163, false_alarm_rate={"1%": 0.02, "5%": 0.0},
        smallest_allowance=0.03, cells=[of_cell], disturbed=0.34,
    )  # fmt: skip
    asked = []
    monkeypatch.setattr(noise, "suite_noise", lambda *arguments: asked.append(arguments) or given)
    command = ["calibrate", *CELLS, "layout", "-a", "threads=2", "--budget", "3min", "--out", "new/machine.json"]
    command[command.index("--kernel") : command.index("--kernel") + 2] = []
    assert main(command) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "projection: 1.6 % between two processes (9 pairs of 6.0 s); in ab's default budget 3 % and more can" in shown
    )
    assert "layout: false alarms by allowance, replayed: 1%: 2 %, 5%: 0 %" in shown
    assert "layout: the machine had other things to do in 34 % of the turns; calibrate again" in shown
    assert "2 threads: float32 " in shown and "best copy: " in shown and "stored in new/machine.json" in shown
    # The budget is that of all suites; each process has two threads.
    assert [(seconds, protocol.threads) for _, _, protocol, seconds, _ in asked] == [(90.0, 2)] * 2
    assert not default_file().exists()
    calibration = read_calibration(Path("new/machine.json"))
    assert calibration is not None and calibration.ceilings.threads == 2 and calibration.suites["layout"] == given


def never(*arguments: object) -> None:
    raise AssertionError("was measured")


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (["projection", "--out", "file/x.json"], 2, "file: can't be made: "),
        (["projection", "--out", "folder"], 2, "folder: is no file's name here"),
        (["projection", "nosuite"], 2, "unknown suite 'nosuite'"),
        (["projection", "--kernel", "nokernel"], 2, "unknown kernel"),
        (["projection", "--budget", "60"], 2, "write it as 120s or 2min"),
        (["projection", "-a", "dtype=tf32", "--device", "cpu"], 4, "suite projection: no cell of it can run here: "),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], exit_code: int,
    says: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(ceilings, "ceilings", never)
    monkeypatch.setattr(noise, "suite_noise", never)
    Path("file").touch()
    Path("folder").mkdir()
    assert main(["calibrate", *arguments]) == exit_code
    captured = capsys.readouterr()
    assert captured.out == "" and len(captured.err.splitlines()) == 1 and says in captured.err
    assert not default_file().exists()
