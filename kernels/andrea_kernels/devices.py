"""Where a Triton kernel runs: on a GPU of some compute capability, or in the interpreter on CPU tensors."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

# The interpreter has no architecture: it takes the tiles of the lowest one that the tables know.
INTERPRETED_ARCHITECTURE = 80


def interpreted() -> bool:
    """Whether the kernels run in Triton's interpreter, on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def architecture(device: torch.device) -> int:
    """Compute capability of the tensors' GPU: 89 for 8.9."""
    import torch

    if device.type != "cuda":
        return INTERPRETED_ARCHITECTURE
    major, minor = torch.cuda.get_device_capability(device)
    return 10 * major + minor
