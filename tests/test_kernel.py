"""The registry: what is known of a kernel without torch, users' own kernels, and the hash of its code."""

import shutil
from pathlib import Path

import pytest

from andrea_bench import Problem
from andrea_bench.errors import BadInput
from andrea_bench.kernel import _with_imports, find_kernel, kernel, kernels

SMALL = Problem(d_model=32, n_head=2, seq_len=16)


def test_the_source_hash_covers_what_the_kernel_imports() -> None:
    files = {file.name for file in _with_imports(find_kernel("attention", "triton_exact").file)}
    assert {"triton_attention.py", "forward.py", "backward.py", "tiles.py", "launch.py"} <= files
    assert "torch_flex.py" not in files
    assert {f.name for f in _with_imports(find_kernel("layout", "split_heads").file)} >= {"torch_layout.py", "heads.py"}


def test_the_hash_changes_with_the_file(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("def f(q, k, v):\n    return q\n")
    before = find_kernel("attention", f"{file}:f").source_hash()
    _with_imports.cache_clear()
    file.write_text("def f(q, k, v):\n    return q + 0\n")
    assert find_kernel("attention", f"{file}:f").source_hash() != before


def test_needs_are_known_without_running() -> None:
    exact = find_kernel("attention", "triton_exact")
    assert "runs on cuda only" in (exact.unsupported_problem(SMALL, "cpu") or "")
    assert exact.unsupported_problem(SMALL.replace(dtype="bfloat16"), "cuda:1") is None
    eager = find_kernel("attention", "eager")
    assert "tensor-core format" in (eager.unsupported(SMALL.replace(dtype="tf32"), "cpu") or "")
    assert find_kernel("attention", "flash_attn").unsupported(SMALL, "cpu") == (
        "needs the package flash_attn, which is not installed"
    ) or shutil.which("nvidia-smi")


def test_every_kernel_says_in_a_sentence_what_it_is() -> None:
    # Other tests of this process may have registered kernels of their own.
    ours = [one for one in kernels() if one.file.parent.name == "andrea_kernels"]
    assert len(ours) > 30
    for one in ours:
        assert len(one.summary) > 15, one.name


def test_a_name_is_taken_once() -> None:
    with pytest.raises(ValueError, match="eager of attention stands in"):
        kernel("attention", "eager")(lambda problem, inputs: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(BadInput, match="unknown op 'atention'; closest: attention"):
        kernel("atention")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "name", "says"),
    [
        ("def f(:\n", "f", "can't be imported: SyntaxError"),
        ("import nowhere\n", "f", "ModuleNotFoundError"),
        ("def flash(q, k, v): ...\n", "flahs", "closest: flash"),
    ],
)
def test_a_users_file_that_is_no_use(tmp_path: Path, content: str, name: str, says: str) -> None:
    file = tmp_path / "own.py"
    file.write_text(content)
    with pytest.raises(BadInput, match=says):
        find_kernel("attention", f"{file}:{name}")
