"""What `claims` measures on this machine: the smallest set of Groups that the statements about time need."""

from typing import Any

from andrea_bench.axes import AxisRequest
from andrea_bench.plan import Plan, available_memory_bytes, make_plan
from andrea_bench.protocol import Protocol

# (suite, its kernels, axes), in the order of measuring.
Points = list[tuple[str, list[str], dict[str, list[Any]]]]

PROJECTIONS = ["per_head_loop", "per_head_batched", "fused_each", "fused_qkv"]
LAYOUTS = ["qk_strided", "qk_contiguous", "qk_copy_then_contiguous", "attention_strided", "attention_contiguous",
           "attention_copy_then_contiguous"]  # fmt: skip
HEAD_LOOP = ["per_head_loop", "eager", "sdpa"]
BACKENDS = ["sdpa", "sdpa_flash", "sdpa_efficient", "sdpa_cudnn"]
OWN = ["triton_exact", "triton_padded", "triton_scalar_loads"]
GRID_KERNELS = ["triton_exact", "triton_per_head_block"]
BOTH = ["forward", "backward"]

# Trials: one Group a suite, in seconds.
SMALL: Points = [
    ("projection", PROJECTIONS, {"d_model": [128], "n_head": [4], "seq_len": [16, 64]}),
    ("layout", LAYOUTS, {"d_model": [128], "n_head": [4], "seq_len": [64]}),
    ("attention", HEAD_LOOP, {"d_model": [768], "n_head": [12, 6], "seq_len": [32]}),
]
# batch x seq_len x n_head, forward and backward, for the crossover; all under four minutes on two cores.
CPU: Points = [
    ("projection", PROJECTIONS,
     {"d_model": [768], "n_head": [4, 12, 24], "batch": [1, 8], "seq_len": [1, 16, 64], "direction": BOTH}),
    ("projection", PROJECTIONS, {"d_model": [768], "n_head": [4, 12, 24], "seq_len": [256, 512], "direction": BOTH}),
    ("layout", LAYOUTS, {"d_model": [768], "n_head": [12], "seq_len": [128, 1024]}),
    ("attention", HEAD_LOOP, {"d_model": [768], "n_head": [24, 12, 6], "seq_len": [512]}),
    ("attention", HEAD_LOOP, {"n_head": [12], "head_dim": [32, 72], "seq_len": [512]}),
]  # fmt: skip
# A GPU in its default dtype, and the head_dims of the tile statements in the others. What takes long there is
# compiling and checking, so that kernels of Triton are few. Under two minutes.
CUDA: Points = [
    ("projection", PROJECTIONS,
     {"d_model": [768], "n_head": [12], "batch": [1, 8, 32], "seq_len": [128, 1024], "direction": BOTH}),
    ("projection", PROJECTIONS, {"d_model": [768], "n_head": [4, 24], "batch": [1, 32], "seq_len": [128, 1024]}),
    ("layout", LAYOUTS, {"d_model": [768], "n_head": [12], "batch": [1, 8], "seq_len": [1024]}),
    ("attention", [*HEAD_LOOP, *BACKENDS[1:], *OWN, GRID_KERNELS[1]],
     {"n_head": [12], "head_dim": [64], "batch": [8], "seq_len": [1024]}),
    ("attention", [*BACKENDS, *OWN], {"n_head": [12], "head_dim": [32, 72], "batch": [8], "seq_len": [1024]}),
    ("attention", [*HEAD_LOOP, *GRID_KERNELS], {"d_model": [768], "n_head": [12], "batch": [1, 32],
                                                "seq_len": [1024]}),
    ("attention", HEAD_LOOP, {"d_model": [768], "n_head": [24, 6], "batch": [8], "seq_len": [1024]}),
    ("attention", [*BACKENDS, OWN[0]],
     {"n_head": [12], "head_dim": [32, 64, 72], "batch": [8], "seq_len": [1024],
      "dtype": ["float16", "tf32", "float32"]}),
]  # fmt: skip


def claims_plan(grid: str, device: str, protocol: Protocol) -> Plan:
    """The Plan of a grid (`small`, `full`) on `device`, in its default dtype."""
    memory = available_memory_bytes(device)
    plan = Plan(device=device, protocol=protocol, groups=[], memory_bytes=memory)
    points = SMALL if grid == "small" else CUDA if device.startswith("cuda") else CPU
    for suite, kernels, axes in points:
        made = make_plan([suite], AxisRequest(axes=axes), device=device, protocol=protocol, only_kernels=kernels,
                         memory_bytes=memory)  # fmt: skip
        plan.groups += made.groups
    return plan
