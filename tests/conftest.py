"""Fixtures that several packages' tests share."""

import ctypes
import os
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

# A shell starts what runs in its background with SIGINT ignored, and so would all that tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Whole files go to one worker each: the longest must not be what the last one is left alone with.
LONGEST = ("test_interpreted.py", "test_compile_facts.py", "test_structure.py", "test_attention_compiled.py",
           "test_tile_search.py", "test_claims_verb.py", "test_asv_commands.py")  # fmt: skip


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, all others as they come."""
    items.sort(key=lambda item: LONGEST.index(item.path.name) if item.path.name in LONGEST else len(LONGEST))


SOURCE = Path(__file__).parent / "hardware" / "libnvidia_ml.c"


@pytest.fixture(scope="session")
def nvml_libraries(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The stand-in for libnvidia-ml.so.1, compiled: as a current driver's and as an old one's. Built without a
    soname, so that nothing else in this process can pick it up in place of a real one."""
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler here to build the stand-in for libnvidia-ml.so.1")
    libraries = {}
    for name, flags in {"current": [], "old": ["-DOLD_DRIVER"]}.items():
        libraries[name] = tmp_path_factory.mktemp(f"nvml_{name}") / "libnvidia-ml.so.1"
        subprocess.run([compiler, "-shared", "-fPIC", *flags, "-o", libraries[name], SOURCE], check=True)
    return libraries


@pytest.fixture
def stand_in(nvml_libraries: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, str]]:
    """Call it with the stand-in's settings (sm_clocks="800", ...) and the real pynvml talks to it; `driver`
    is current or old. Returns the environment for a process of its own that shall see the same."""
    pynvml = pytest.importorskip("pynvml", reason="the package nvidia-ml-py is not installed")

    def use(driver: str = "current", **settings: object) -> dict[str, str]:
        library = ctypes.CDLL(str(nvml_libraries[driver]))
        library.stand_in_reset()
        monkeypatch.setattr(pynvml, "nvmlLib", library)
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
        for name in [n for n in os.environ if n.startswith("STAND_IN_")]:
            monkeypatch.delenv(name)
        for name, value in settings.items():
            monkeypatch.setenv(f"STAND_IN_{name.upper()}", str(value))
        return {**os.environ, "LD_LIBRARY_PATH": str(nvml_libraries[driver].parent)}

    return use
