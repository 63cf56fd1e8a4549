"""`doctor` and `monitor` on machines with and without GPUs: what they say, their JSON and exit codes."""

import dataclasses
import json
import os
import signal
import subprocess
import sys

import pytest

from andrea_bench.cli import doctor as module
from andrea_bench.cli.main import main
from andrea_bench.kernel import kernels
from andrea_bench.measure.advice import advice

QUIET = {"cpu_steal_share": 0.0, "cpu_foreign_cpus": 0.0, "cpu_cpus": 4, "cpu_quota_throttled_s": 0.0}


@pytest.fixture(autouse=True)
def no_wait(monkeypatch):
    monkeypatch.setattr(module, "LOOK_S", 0.05)


@pytest.fixture
def few_kernels(monkeypatch):
    """The kernels that are ready at once: one compiles for seconds."""
    quick = [kernel for kernel in kernels() if kernel.name in ("sdpa_math", "sdpa_cudnn", "eager", "triton_exact")]
    monkeypatch.setattr("andrea_bench.kernel.kernels", lambda: quick)
    return quick


def report(capsys, code=0):
    assert main(["doctor", "--json"]) == code
    captured = capsys.readouterr()
    return json.loads(captured.out), captured.err


def test_without_a_gpu_it_says_so_and_ends_well(capsys, stand_in, few_kernels):
    stand_in(fail="nvmlInit_v2=9")
    found, _ = report(capsys)
    assert found["can_measure"] is True
    assert found["live"]["gpus"] == []
    assert found["live"]["gpus_reason"].startswith("the NVIDIA driver is not loaded: load it")
    rows = {(row["kernel"], row["device"]): row for row in found["kernels"]}
    assert rows["sdpa_math", "cpu"]["can_run"] is True
    assert rows["sdpa_cudnn", "cpu"]["can_run"] is False, "found by trying"
    assert "no cudnn backend for a CPU" in rows["sdpa_cudnn", "cpu"]["reason"]
    assert all(row["reason"] for row in found["kernels"] if not row["can_run"])
    assert len(rows) == 2 * len(few_kernels)


def test_a_kernel_that_breaks_does_not_end_it(capsys, few_kernels):
    def broken(problem, inputs):
        raise RuntimeError("two\nlines")

    few_kernels[0] = dataclasses.replace(few_kernels[0], prepare=broken)
    found, _ = report(capsys)
    reason = next(r["reason"] for r in found["kernels"] if r["kernel"] == few_kernels[0].name)
    assert reason == "RuntimeError: two lines"


def test_nothing_to_measure_with_is_exit_4(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    found, said = report(capsys, code=4)
    assert found["can_measure"] is False
    assert "nothing can be measured here: cpu: torch can't be imported" in said
    assert len(said.strip().splitlines()) == 1
    assert main(["doctor"]) == 4
    assert "Machine" in capsys.readouterr().out, "what it found is shown all the same"


def test_gpus_with_their_state(capsys, stand_in, few_kernels):
    stand_in(reasons="0x44", pids="1")
    found, _ = report(capsys)
    gpu = found["live"]["gpus"][1]
    assert gpu["uuid"].startswith("GPU-bbbb")
    assert (gpu["sm_clock_mhz"], gpu["power_watts"], gpu["power_limit_watts"]) == (2520, 300.5, 450.0)
    assert gpu["event_reasons"] == ["software power cap", "hardware thermal slowdown"]
    assert gpu["pcie_received_gb_per_s"] == 2.0
    assert found["environment"]["driver_version"] == "580.65.06"
    causes = " | ".join(one["cause"] for one in found["advice"])
    both = "NVIDIA GeForce RTX 4090 (GPU-aaaaaaaa), NVIDIA GeForce RTX 4090 (GPU-bbbbbbbb)"
    for cause in (
        "processes 1 use a GPU",
        "the power limit holds clocks down now",
        "slowed down now by hardware thermal slowdown",
        "it drives a display",
        "(persistence mode off)",
    ):
        assert f"{cause}: {both}" in causes, "said once for both"
    locking = next(one["cure"] for one in found["advice"] if "clocks by load" in one["cause"])
    assert "no less than 1890 MHz" in locking, "75 % of 2520: below, samples would count as throttled"


@pytest.mark.parametrize("settings", [{}, {"mig": 1}, {"fail": "*=3"}, {"cards": 0}, {"fail": "nvmlInit_v2=18"}])
def test_it_fits_80_columns_with_any_gpu(capsys, stand_in, few_kernels, settings):
    stand_in(**settings)
    assert main(["doctor"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert settings or any("2235 MHz (application clock)" in line for line in lines)
    assert max(map(len, lines)) <= 80
    for title in ("Machine", "GPUs", "Libraries", "Kernels", "For steadier measurements"):
        assert title in lines
    assert "None" not in "\n".join(lines)


def test_a_host_name_with_markup_is_shown_as_it_is(capsys, monkeypatch, few_kernels):
    monkeypatch.setattr("socket.gethostname", lambda: os.fsdecode(b"[red]b\xfcro[/red]"))
    assert main(["doctor"]) == 0
    assert "[red]b\\xfcro[/red]" in capsys.readouterr().out


# ---- advice ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("machine", "now", "words"),
    [
        ({"governor": "powersave"}, {}, "cpupower"),
        ({"boost": True}, {}, "no_turbo"),
        ({"smt_active": True, "cores": 4}, {}, "at most 4 threads"),
        ({"virtual_machine": True}, {}, "--processes 5"),
        ({}, {"cpu_steal_share": 0.05}, "dedicated instance"),
        ({}, {"cpu_foreign_cpus": 1.5}, "end them"),
        ({}, {"cpu_quota_throttled_s": 0.2}, "quota"),
    ],
)
def test_each_cause_has_its_cure(machine, now, words):
    (one,) = advice(machine, {"cpu": QUIET | now, "gpus": []})
    assert words in one.cure


def test_a_steady_machine_needs_none():
    steady = {"governor": "performance", "boost": False, "smt_active": False, "virtual_machine": False}
    assert advice(steady, {"cpu": QUIET, "gpus": []}) == []
    unknown = dict.fromkeys(QUIET) | {"cpu_cpus": 4}
    assert advice(dict.fromkeys(steady), {"cpu": unknown, "gpus": []}) == []


# ---- monitor --------------------------------------------------------------------------------------------
def test_monitor_writes_one_json_line_a_look(capsys, stand_in):
    stand_in(mig=1)
    assert main(["monitor", "--json", "--count", "3", "--interval", "0.1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(lines) == 3
    assert sorted({line["time"] for line in lines}) == [line["time"] for line in lines]
    card, mig_slice, other = lines[-1]["gpus"]
    assert (card["mig_enabled"], mig_slice["mig_slice"], other["mig_enabled"]) == (True, True, False)
    assert mig_slice["gpu_utilisation_percent_reason"] == "not supported (MIG)"
    assert lines[-1]["cpu"]["cpu_foreign_cpus"] >= 0


@pytest.mark.parametrize("settings", [{}, {"mig": 1}, {"fail": "*=3"}, {"fail": "nvmlInit_v2=12"}])
def test_monitor_in_a_pipe_prints_tables_of_80_columns(capsys, stand_in, settings):
    stand_in(**settings)
    assert main(["monitor", "--count", "2", "--interval", "0.1"]) == 0
    out = capsys.readouterr().out
    assert out.count("slowed by") == 2
    assert max(map(len, out.splitlines())) <= 80
    assert "None" not in out


def test_counters_that_are_demanded_and_absent_are_exit_4(capsys, stand_in):
    stand_in(fail="nvmlInit_v2=9")
    assert main(["monitor", "--device", "cuda", "--count", "1"]) == 4
    assert "no GPU counters: the NVIDIA driver is not loaded" in capsys.readouterr().err
    stand_in(cards=0)
    assert main(["monitor", "--device", "cuda", "--count", "1"]) == 4


def test_monitor_of_the_cpu_alone(capsys, stand_in):
    stand_in()
    assert main(["monitor", "--device", "cpu", "--json", "--count", "1", "--interval", "0.1"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == []


@pytest.mark.parametrize(
    "arguments",
    [["--interval", "0"], ["--interval", "nan"], ["--count", "0"], ["--device", "cuda:1"], ["--device", "x"]],
)
def test_monitor_refuses_nonsense(capsys, arguments):
    assert main(["monitor", *arguments]) == 2
    assert arguments[0] in capsys.readouterr().err


def test_monitor_never_imports_torch():
    code = (
        "import sys; from andrea_bench.cli.main import main;"
        "main(['monitor', '--json', '--count', '1', '--interval', '0.1']);"
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_ctrl_c_ends_monitor_without_a_traceback():
    command = [sys.executable, "-m", "andrea_bench", "monitor", "--json", "--interval", "0.1"]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    json.loads(running.stdout.readline())
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=20)
    assert (running.returncode, said.strip()) == (130, "andrea-bench: interrupted")


def test_monitor_on_a_terminal_redraws_in_place():
    pty = pytest.importorskip("pty", reason="terminals are read through a pty, which this system lacks")
    main_end, terminal = pty.openpty()
    command = [sys.executable, "-m", "andrea_bench", "monitor", "--count", "2", "--interval", "0.1"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80"}
    done = subprocess.run(command, stdout=terminal, stderr=subprocess.PIPE, env=environment, timeout=20)
    shown = os.read(main_end, 100_000).decode()
    os.close(main_end)
    os.close(terminal)
    assert done.returncode == 0, done.stderr
    assert "\x1b[1A" in shown, "the cursor goes back up"
    assert "CPU" in shown
