"""torch's scaled_dot_product_attention: as torch chooses, and forced to each backend.

torch's is_causal is aligned top-left. Where seq_len and kv_len differ, these kernels pass what is aligned
bottom-right: torch's own lower-right bias on CUDA (flash and efficient take it without a mask), else a
mask. Heads that share K and V do so by enable_gqa; nothing is repeated.

The source: torch.nn.functional.scaled_dot_product_attention and its backends. What it trades: nothing to tune, and no
say in how wide a row is computed. Known limits: each backend refuses what it can't do (its reason is kept), and a mask
in place of is_causal may cost time and memory.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from andrea_bench.errors import Unsupported
from andrea_bench.kernel import Work, kernel
from andrea_bench.problem import ELEMENT_BYTES, Problem

if TYPE_CHECKING:
    from torch import Tensor

# Largest tile of queries by keys of torch's flash backend for a CPU (FlashAttentionKernel.cpp).
CPU_TILE = (256, 512)
HALF = ("bfloat16", "float16")
# How torch says that no backend which is switched on can run (2.13; older; cuDNN; 2.11 on CUDA, seen for efficient and
# cuDNN at head_dim 63). Anything else is an error.
REFUSALS = ("No viable backend", "No available kernel", "No execution plans support the graph", "Invalid backend")
# The switches of torch.backends.cuda, one for each backend; they hold for a CPU too.
SWITCHES = {
    "math": ("math_sdp_enabled", "enable_math_sdp"),
    "flash": ("flash_sdp_enabled", "enable_flash_sdp"),
    "efficient": ("mem_efficient_sdp_enabled", "enable_mem_efficient_sdp"),
    "cudnn": ("cudnn_sdp_enabled", "enable_cudnn_sdp"),
}


def _launch(problem: Problem, inputs: Mapping[str, Tensor], *, mask_only: bool = False) -> Callable[[], Tensor]:
    """The call of scaled_dot_product_attention. mask_only: the backend takes a mask, but no lower-right bias."""
    import torch
    from torch.nn.attention.bias import causal_lower_right
    from torch.nn.functional import scaled_dot_product_attention

    q, k, v = inputs["q"], inputs["k"], inputs["v"]
    options: dict[str, Any] = {}
    if problem.n_kv_head != problem.n_head:
        options["enable_gqa"] = True
    if problem.causal and problem.seq_len == problem.kv_len:
        options["is_causal"] = True
    elif problem.causal and problem.seq_len > 1:  # one query, the last, sees every key
        if q.is_cuda and problem.seq_len < problem.kv_len and not mask_only:
            options["attn_mask"] = causal_lower_right(problem.seq_len, problem.kv_len)
        else:
            shape = (problem.seq_len, problem.kv_len)
            seen = torch.ones(shape, dtype=torch.bool, device=q.device)
            options["attn_mask"] = seen.tril(problem.kv_len - problem.seq_len)
    return lambda: scaled_dot_product_attention(q, k, v, **options)


def _forced(problem: Problem, inputs: Mapping[str, Tensor], backend: str) -> Work:
    """The call with one backend switched on; raises Unsupported with torch's reason where it can't run."""
    import torch

    settings = torch.backends.cuda
    found = {name: getattr(settings, is_on)() for name, (is_on, _) in SWITCHES.items()}
    changes = [(getattr(settings, SWITCHES[n][1]), n == backend, on) for n, on in found.items()]
    # Only the switches that differ: each costs the launch a fraction of a microsecond.
    changes = [change for change in changes if change[1] != change[2]]
    launch = _launch(problem, inputs, mask_only=backend in ("math", "cudnn"))

    def run() -> Tensor:
        for switch, forced, _ in changes:
            switch(forced)
        try:
            return launch()
        finally:
            for switch, _, before in changes:
                switch(before)

    # One call tells whether torch has this backend for these tensors; it never falls back to another.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            run()
        except RuntimeError as error:
            if not any(refusal in str(error) for refusal in REFUSALS):
                raise
            device = inputs["q"].device.type
            raise Unsupported(_reason(problem, backend, device, [str(w.message) for w in caught], error)) from error
    return Work(run)


def _reason(problem: Problem, backend: str, device: str, warned: list[str], error: RuntimeError) -> str:
    """Ours where torch's is generic, then torch's own: what it warned about this backend, and its error."""
    ours = []
    if device == "cpu" and backend in ("efficient", "cudnn"):
        ours.append(f"torch has no {backend} backend for a CPU")
    elif problem.dtype not in HALF and backend in ("flash", "cudnn") and device != "cpu":
        ours.append(f"{backend} does not do {problem.dtype}; does {', '.join(HALF)}")
    elif problem.causal and problem.kv_len < problem.seq_len and backend == "flash" and device != "cpu":
        ours.append("causal with kv_len below seq_len needs a mask, which flash does not take")
    own = [text.split(" (Triggered internally")[0].strip() for text in warned]
    own = [text for text in own if not text.endswith(("not used because:", "disabled.", "can't be used because:"))]
    torchs = "; ".join(dict.fromkeys([*own, str(error).splitlines()[0]]))
    return "; ".join([*ours, f"torch: {torchs}"])


def _mask_bytes(problem: Problem) -> int:
    """The mask (a byte each, and once more in the dtype where the backend adds it), where one is passed."""
    if not problem.causal or problem.seq_len in (1, problem.kv_len):
        return 0
    return problem.seq_len * problem.kv_len * (1 + ELEMENT_BYTES[problem.dtype])


def _fused_bytes(problem: Problem) -> int:
    """What a fused backend may hold: a float32 log-sum-exp per row, K and V expanded to all heads, a tile of
    scores and of outputs (per thread of a CPU), and in backward a float32 copy of the gradients."""
    rows = problem.batch * problem.n_head * problem.seq_len
    keys = problem.batch * problem.n_head * problem.kv_len * problem.head_dim
    tile = CPU_TILE[0] * (CPU_TILE[1] + problem.head_dim) * 4
    held = 4 * rows + tile + _mask_bytes(problem)
    if problem.n_kv_head != problem.n_head:
        held += 2 * keys * ELEMENT_BYTES[problem.dtype]
    if problem.direction in ("backward", "forward_backward"):
        held += 4 * (rows * problem.head_dim + 2 * keys)
    return held


def _math_bytes(problem: Problem) -> int:
    """Scores, weights and a mask's worth of them (one more in backward), in float32 for the half types too,
    and the inputs scaled, cast, and expanded to all heads."""
    scores = problem.batch * problem.n_head * problem.seq_len * problem.kv_len * 4
    tensors = problem.batch * problem.n_head * (problem.seq_len + 2 * problem.kv_len) * problem.head_dim * 4
    gradients = problem.direction in ("backward", "forward_backward")
    return scores * (4 if gradients else 3) + tensors * (3 if gradients else 2) + _mask_bytes(problem)


@kernel("attention", workspace_bytes=_fused_bytes)
def sdpa(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """scaled_dot_product_attention as torch chooses; the backend that it chose is recorded."""
    return Work(_launch(problem, inputs))


@kernel("attention", workspace_bytes=_math_bytes)
def sdpa_math(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """scaled_dot_product_attention forced to the math backend: plain operations in C++."""
    return _forced(problem, inputs, "math")


@kernel("attention", workspace_bytes=_fused_bytes)
def sdpa_flash(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """scaled_dot_product_attention forced to the flash backend (on a CPU torch has one of its own)."""
    return _forced(problem, inputs, "flash")


@kernel("attention", workspace_bytes=_fused_bytes)
def sdpa_efficient(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """scaled_dot_product_attention forced to the memory-efficient backend."""
    return _forced(problem, inputs, "efficient")


@kernel("attention", workspace_bytes=_fused_bytes)
def sdpa_cudnn(problem: Problem, inputs: Mapping[str, Tensor]) -> Work:
    """scaled_dot_product_attention forced to the cuDNN backend."""
    return _forced(problem, inputs, "cudnn")
