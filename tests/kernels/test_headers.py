"""Each kernel file opens with the idea, its source, what it trades and its known limits."""

import ast
from pathlib import Path

import andrea_kernels
import pytest

from andrea_bench.kernel import kernels

FOLDER = Path(andrea_kernels.__file__).parent
DEVICE_CODE = [FOLDER / name for name in ("flash/forward.py", "flash/backward.py", "flash/decode.py",
                                          "projection/device.py")]  # fmt: skip
FILES = sorted({kernel.file for kernel in kernels() if kernel.file.parent == FOLDER}) + DEVICE_CODE


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_kernel_file_opens_with_idea_source_trade_and_limits(file: Path) -> None:
    header = (ast.get_docstring(ast.parse(file.read_text())) or "").lower()
    told = ("idea", "trade", "limits") if file in DEVICE_CODE else ("source", "trade", "limits")
    assert [word for word in told if word not in header] == []
