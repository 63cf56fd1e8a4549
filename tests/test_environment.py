"""What a Run keeps of its machine, and which differences between two machines count (cases C28, GC02)."""

import json
import os
import subprocess
import sys

import pytest

from andrea_bench import environment as module
from andrea_bench.environment import differences, environment, git_state

A, B = "GPU-aaaaaaaa-0000-0000-0000-000000000001", "GPU-bbbbbbbb-0000-0000-0000-000000000002"
H100 = {"uuid": A, "name": "NVIDIA H100 PCIe", "pci_bus_id": "00000000:01:00.0", "memory_total_bytes": 80 * 2**30,
        "cuda_cores": 14592, "max_sm_clock_mhz": 1755, "power_limit_watts": 350.0, "ecc_enabled": True}  # fmt: skip


def run(device="cuda:0", **gpu):
    return {"device": device, "gpu": {**H100, **gpu}, "cpu": {"model": "AMD EPYC 9654", "logical_cpus": 8}}


# ---- differences ----------------------------------------------------------------------------------------
def test_another_gpu_is_named_field_by_field():
    other = run(uuid=B, name="NVIDIA H200", memory_total_bytes=141 * 2**30)
    assert differences(run(), other) == [
        "GPU name: NVIDIA H100 PCIe -> NVIDIA H200",
        f"GPU memory total bytes: {80 * 2**30} -> {141 * 2**30}",
    ]


def test_the_same_gpu_under_another_index():
    assert differences(run("cuda:4"), run("cuda:0")) == []
    assert differences(run("cuda:4"), run("cuda", uuid=A.removeprefix("GPU-"))) == []


def test_the_same_kind_of_gpu_in_another_slot():
    assert differences(run(), run(uuid=B, pci_bus_id="00000000:81:00.0")) == []


def test_settings_count_for_the_same_gpu():
    assert differences(run(), run(power_limit_watts=250.0)) == ["GPU power limit watts: 350.0 -> 250.0"]
    assert differences(run(), run(ecc_enabled=False)) == ["GPU ecc enabled: True -> False"]
    assert differences(run(application_sm_clock_mhz=1755), run(application_sm_clock_mhz=1200)) == [
        "GPU application sm clock mhz: 1755 -> 1200"
    ]
    assert differences(run(), run(application_sm_clock_mhz=1200)) == [], "the driver need not say it"
    assert differences(run(), run(power_limit_watts=351.0)) == [], "limits are rounded by the driver"


def test_software_and_hosts_do_not_count():
    one, other = run(), run()
    other |= {"driver_version": "590.1", "libraries": {"torch": "2.14"}, "host": "3d2260935502"}
    other["git"] = {"commit": "f" * 40}
    assert differences(one, other) == []


def test_cpu_against_gpu_and_cpu_against_cpu():
    assert differences(run(), run("cpu")) == ["device: cuda -> cpu"]
    other = run("cpu")
    other["cpu"] = {"model": "Intel Xeon", "logical_cpus": 8}
    assert differences(run("cpu"), other) == ["CPU model: AMD EPYC 9654 -> Intel Xeon"]
    assert differences(run("cpu"), run("cpu", name="another GPU beside it")) == []
    one, other = run("cpu"), run("cpu")
    one["cpu"]["governor"], other["cpu"]["governor"] = "powersave", "performance"
    assert differences(one, other) == ["CPU governor: powersave -> performance"]


@pytest.mark.parametrize("empty", [{}, {"device": "cpu"}, {"device": "cpu", "cpu": None}, {"cpu": {}}])
def test_what_one_side_does_not_know_is_not_compared(empty):
    assert differences(run("cpu"), empty) == differences(empty, run("cpu")) == []


def test_a_machine_does_not_differ_from_itself():
    here = environment("cpu")
    assert differences(here, json.loads(json.dumps(environment("cpu")))) == []


# ---- what is kept ---------------------------------------------------------------------------------------
def test_nothing_heavy_is_imported():
    code = (
        "import sys; from andrea_bench.environment import environment; found = environment('cpu');"
        "assert found['libraries']['torch'];"
        "print(sorted({'torch', 'triton', 'numpy', 'polars', 'rich'} & set(sys.modules)))"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"


def test_it_is_strict_json_and_says_what_is_absent():
    found = environment("cpu")
    json.dumps(found, allow_nan=False)
    absent = [name for name, value in found["cpu"].items() if value is None]
    assert all(found["cpu"][f"{name}_reason"] for name in absent)
    assert found["cpu"]["logical_cpus"] == os.cpu_count()
    assert "gpu" not in found


@pytest.mark.parametrize(
    ("raw", "shown"), [(b"B\xfcro-PC 1", "B\\xfcro-PC 1"), (b"\xff\xfe", "\\xff\\xfe"), ("Büro".encode(), "Büro")]
)
def test_a_host_name_of_any_bytes_is_kept(monkeypatch, raw, shown):
    monkeypatch.setattr("socket.gethostname", lambda: os.fsdecode(raw))
    found = environment("cpu")
    assert found["host"] == shown
    json.dumps(found).encode("utf-8")
    assert found.get("host_bytes_hex") == (None if shown == "Büro" else raw.hex())


def test_variables_that_change_timings(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("HOME_SWEET", "secret")
    assert environment("cpu")["variables"]["OMP_NUM_THREADS"] == "3"
    assert "secret" not in json.dumps(environment("cpu"))


# ---- GPUs -----------------------------------------------------------------------------------------------
def test_gpus_by_uuid_with_driver_and_limits(stand_in):
    stand_in()
    found = environment("cuda:0", gpu_uuid=B.removeprefix("GPU-"))
    assert [gpu["uuid"] for gpu in found["gpus"]] == [A, B]
    assert found["gpu"]["uuid"] == B
    assert found["gpu"]["power_limit_watts"] == 450.0
    assert (found["driver_version"], found["cuda_driver_version"]) == ("580.65.06", "13.0")
    assert environment("cuda:0", pci_bus_id="0000:81:00.0")["gpu"]["uuid"] == B


def test_cuda_index_alone_names_no_card_among_several(stand_in, monkeypatch):
    stand_in(mig=1)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = environment("cuda:0")
    assert found["gpu"] is None
    assert found["gpu_reason"] == "which of 3 GPUs CUDA calls cuda:0 is not known here"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{B},{A}")
    assert environment("cuda:0")["gpu"]["uuid"] == B
    assert environment("cuda:1")["gpu"]["uuid"] == A
    stand_in(cards=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    assert environment("cuda")["gpu"]["uuid"] == A


def test_of_equal_cards_the_kind_is_known(stand_in, monkeypatch):
    stand_in()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    found = environment("cuda:1")
    assert (found["gpu"]["uuid"], found["gpu"]["name"]) == (None, "NVIDIA GeForce RTX 4090")
    assert found["gpu_reason"] == "one of 2 equal GPUs"
    other = {**found, "gpu": {**found["gpu"], "name": "NVIDIA H200"}}
    assert differences(found, other) == ["GPU name: NVIDIA GeForce RTX 4090 -> NVIDIA H200"]


def test_a_slice_is_named_by_its_uuid(stand_in, monkeypatch):
    stand_in(mig=1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "MIG-cccccccc-0000-0000-0000-000000000003")
    found = environment("cuda:0")
    assert found["gpu"]["mig_slice"] is True
    assert found["gpu"]["memory_total_bytes"] == 10 * 2**30


def test_a_gpu_that_nvml_does_not_know(stand_in):
    stand_in()
    found = environment("cuda:0", gpu_uuid="GPU-dddddddd-0000-0000-0000-000000000004")
    assert found["gpu"]["uuid"] == "GPU-dddddddd-0000-0000-0000-000000000004"
    assert found["gpu_reason"] == "NVML does not know this GPU"


def test_without_nvml_there_is_a_reason(stand_in):
    stand_in(fail="nvmlInit_v2=18")
    found = environment("cuda:0")
    assert found["gpus"] == []
    assert "reboot" in found["gpus_reason"]
    assert found["gpu_reason"] == "NVML lists no GPU"


# ---- git ------------------------------------------------------------------------------------------------
@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A repository that holds a package, taken for this one's; and a function that runs git in it."""
    package = tmp_path / "andrea_bench"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.setattr(module.andrea_bench, "__file__", str(package / "__init__.py"))
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: None)

    def git(*arguments):
        identity = ["-c", "user.name=T", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false"]
        return subprocess.run(
            ["git", "-C", tmp_path, *identity, *arguments], check=True, capture_output=True, text=True
        ).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    return tmp_path, git


def test_commit_and_clean_tree(tree):
    folder, git = tree
    (folder / "results").mkdir()
    (folder / "results" / "run.json").write_text("{}")
    assert git_state() == {"commit": git("rev-parse", "HEAD"), "dirty": False}


@pytest.mark.parametrize("name", ["__init__.py", "new_kernel.py"])
def test_changed_or_new_code_is_dirty(tree, name):
    (tree[0] / "andrea_bench" / name).write_text("x = 1\n")
    assert git_state()["dirty"] is True


def test_code_that_stands_in_no_repository_of_its_own(tree):
    _, git = tree
    git("rm", "-q", "--cached", "-r", "andrea_bench")
    state = git_state()
    assert (state["commit"], state["dirty"]) == (None, None)
    assert "did not match" in state["reason"]


def test_a_repository_without_a_commit_and_no_repository(tree, tmp_path_factory, monkeypatch):
    elsewhere = tmp_path_factory.mktemp("plain") / "andrea_bench"
    elsewhere.mkdir()
    monkeypatch.setattr(module.andrea_bench, "__file__", str(elsewhere / "__init__.py"))
    assert "not a git repository" in git_state()["reason"]


def test_a_hooks_variables_do_not_mislead(tree, monkeypatch):
    monkeypatch.setenv("GIT_DIR", "/nonexistent")
    assert git_state()["commit"] == tree[1]("--git-dir", str(tree[0] / ".git"), "rev-parse", "HEAD")


def test_without_git(monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    assert git_state()["reason"] == "git is not installed"
