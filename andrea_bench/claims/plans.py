"""What `claims` measures on this machine: the smallest set of Groups that the statements about time need."""

from typing import Any

from andrea_bench.axes import AxisRequest
from andrea_bench.plan import Plan, available_memory_bytes, make_plan
from andrea_bench.protocol import Protocol

Points = list[dict[str, list[Any]]]

PROJECTIONS = ["per_head_loop", "per_head_batched", "fused_each", "fused_qkv"]
LAYOUTS = ["qk_strided", "qk_contiguous", "qk_copy_then_contiguous", "attention_strided", "attention_contiguous",
           "attention_copy_then_contiguous"]  # fmt: skip

GRIDS: dict[str, dict[str, tuple[list[str], Points]]] = {
    # Trials: one Group a suite, in seconds.
    "small": {
        "projection": (PROJECTIONS, [{"d_model": [128], "n_head": [4], "seq_len": [16, 64]}]),
        "layout": (LAYOUTS, [{"d_model": [128], "n_head": [4], "seq_len": [64]}]),
        "attention": (["per_head_loop", "eager", "sdpa"], [{"d_model": [768], "n_head": [12, 6], "seq_len": [32]}]),
    },
    # batch x seq_len x n_head, forward and backward, for the crossover; under five minutes on two cores.
    "full": {
        "projection": (
            PROJECTIONS,
            [
                {"d_model": [768], "n_head": [4, 12], "batch": [1], "seq_len": [1, 16, 128, 512],
                 "direction": ["forward", "backward"]},
                {"d_model": [768], "n_head": [12], "batch": [8], "seq_len": [16, 128],
                 "direction": ["forward", "backward"]},
            ],
        ),
        "layout": (LAYOUTS, [{"d_model": [768], "n_head": [12], "seq_len": [128, 1024]}]),
        "attention": (
            ["per_head_loop", "eager", "sdpa"],
            [{"d_model": [768], "n_head": [24, 12, 6], "seq_len": [512]},
             {"n_head": [12], "head_dim": [32, 72], "seq_len": [512]}],
        ),
    },
}  # fmt: skip


def claims_plan(grid: str, device: str, protocol: Protocol) -> Plan:
    """The Plan of a grid of GRIDS on `device`, in its default dtype."""
    memory = available_memory_bytes(device)
    plan = Plan(device=device, protocol=protocol, groups=[], memory_bytes=memory)
    for suite, (kernels, points) in GRIDS[grid].items():
        for axes in points:
            made = make_plan([suite], AxisRequest(axes=axes), device=device, protocol=protocol,
                             only_kernels=kernels, memory_bytes=memory)  # fmt: skip
            plan.groups += made.groups
    return plan
