"""How torch's backends and other libraries take head_dim 64, 32 and 72, by the rules in their sources."""

from dataclasses import dataclass

from andrea_bench.claims.finding import Evidence, Outcome
from andrea_bench.errors import Unsupported
from andrea_bench.predict.families import TILED


@dataclass(frozen=True)
class Backend:
    """family: whose widths it computes (predict/families.py), on that compute capability. float32_step: of what
    head_dim must be a multiple in float32, with or without tf32; None: it does 16-bit types alone. only:
    the head_dims that it takes, where it takes few."""

    name: str
    family: str
    compute_capability: str
    source: str
    float32_step: int | None = None
    only: tuple[int, ...] = ()


BACKENDS = (
    Backend("torch SDPA flash", "sdpa_flash", "8.0",
            "flash-attention 0251105a, static_switch.h:90: 32, 64, 96, 128, 192, 256"),
    Backend("FlashAttention-3", "flash_attention_3", "9.0",
            "flash-attention 0251105a, hopper/flash_api.cpp:492: from 64"),
    Backend("torch SDPA cuDNN", "sdpa_cudnn", "9.0", "PyTorch 001f694a, sdp_utils.cpp: head_dim a multiple of 8"),
    Backend("torch SDPA efficient", "sdpa_efficient", "8.0",
            "xformers 7a3838f3, generate_kernels.py:117: 64, 128, 65536; PyTorch 001f694a, sdp_utils.cpp: rows of "
            "whole 16 bytes", float32_step=4),
    Backend("FlexAttention", "flex", "8.0", "torch 2.14.1, inductor kernel/flex/common.py:459: next power of two",
            float32_step=1),
    Backend("FlashInfer", "flashinfer", "8.0", "FlashInfer, include/flashinfer/utils.cuh:197: 64, 128, 256, 512 only",
            only=(64, 128, 256, 512)),
)  # fmt: skip
# Where it was seen that a head_dim moved a user to another backend.
VLLM = Evidence(
    on="vLLM",
    how="published",
    finding="holds",
    text="head size 72 (a SigLIP tower) was refused by its flash-attention backend and ran on xFormers instead",
    numbers={"head_dim": 72},
    source="vllm-project/vllm#12656",
)


def backend_rules(head_dim: int) -> list[Evidence]:
    """Every backend's answer at that head_dim, in 16-bit types and in float32."""
    found = [_rule(one, head_dim, dtypes) for one in BACKENDS for dtypes in ("bfloat16, float16", "tf32, float32")]
    return found + ([VLLM] if head_dim == 72 else [])


def _rule(one: Backend, head_dim: int, dtypes: str) -> Evidence:
    def evidence(finding: Outcome, text: str, **numbers: int | float | str | None) -> Evidence:
        return Evidence(on=f"{one.name}, {dtypes}", how="published", finding=finding, text=text, source=one.source,
                        numbers={"head_dim": head_dim, **numbers})  # fmt: skip

    in_float32 = "float32" in dtypes
    if in_float32 and one.float32_step is None:
        return evidence("not_testable_here", "does bfloat16 and float16 alone, whatever the head_dim")
    # Refused: another backend is needed, which is what tile-72 says, and no fit.
    refused: Outcome = "holds" if head_dim == 72 else "fails"
    if one.only and head_dim not in one.only:
        return evidence(refused, f"refuses head_dim {head_dim}: a fallback is forced")
    if in_float32 and head_dim % (one.float32_step or 1):
        return evidence(refused, f"needs head_dim to be a multiple of {one.float32_step}: a fallback is forced",
                        multiple_of=one.float32_step)  # fmt: skip
    try:
        width = TILED[one.family].computed_width(head_dim, one.compute_capability)
    except Unsupported as error:
        return evidence(refused, f"{error}: a fallback is forced", reason=str(error))
    if head_dim == 72:
        # It stays in its own kernel.
        more = width / head_dim - 1
        return evidence("fails", f"no fallback: computed {width} wide by the same kernel ({more:.0%} more than 72)",
                        width=width, more=more)  # fmt: skip
    return evidence("holds" if (width == head_dim) == (head_dim == 64) else "fails", f"computed {width} wide",
                    width=width)  # fmt: skip
