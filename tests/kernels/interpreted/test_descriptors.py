"""Loops that read by tensor descriptors give bit for bit what loops that read by pointers give."""

import pytest
import torch
from andrea_kernels import attention
from andrea_kernels.flash import launch, tiles
from andrea_kernels.flash.function import describe
from andrea_kernels.flash.tiles import Tile
from attention_criterion import NEEDS_DESCRIPTORS, every_launch_with
from torch import Tensor


def tensors(device: str, dtype: torch.dtype, head_dim: int, seq_len: int, kv_len: int) -> list[Tensor]:
    made = []
    for seed, (heads, rows) in enumerate([(2, seq_len), (1, kv_len), (1, kv_len), (2, seq_len)]):
        generator = torch.Generator().manual_seed(seed)
        made.append(torch.randn(1, heads, rows, head_dim, generator=generator).to(device, dtype))
    return made


def answers(given: list[Tensor], *, causal: bool, descriptors: bool) -> list[Tensor]:
    """out, dq, dk and dv, all three launches with or without descriptors."""
    q, k, v = (tensor.detach().requires_grad_() for tensor in given[:3])
    with every_launch_with(Tile(64, 32, 4, 2, descriptors)):
        out = attention(q, k, v, causal=causal)
        return [out.detach(), *torch.autograd.grad(out, (q, k, v), given[3])]


@NEEDS_DESCRIPTORS
@pytest.mark.parametrize(("head_dim", "dtype"), [(16, torch.float16), (72, torch.bfloat16), (112, torch.float16)])
def test_descriptors_change_nothing(device: str, head_dim: int, dtype: torch.dtype) -> None:
    for seq_len, kv_len, causal in ((70, 70, True), (33, 40, True), (40, 33, False)):
        given = tensors(device, dtype, head_dim, seq_len, kv_len)
        by_descriptors = answers(given, causal=causal, descriptors=True)
        by_pointers = answers(given, causal=causal, descriptors=False)
        assert all(torch.equal(a, b) for a, b in zip(by_descriptors, by_pointers, strict=True))
        assert not by_pointers[0].isnan().any()


@NEEDS_DESCRIPTORS
def test_no_keys_and_no_sequences(device: str) -> None:
    given = tensors(device, torch.float16, 64, 5, 0)
    assert all((answer == 0).all() for answer in answers(given, causal=False, descriptors=True))


def reads_by_descriptors(tensor: Tensor, variant: str = "exact") -> bool:
    call = describe({"q": tensor, "k": tensor, "v": tensor, "out": tensor}, causal=True, scale=1.0, variant=variant,
                    precision="ieee")  # fmt: skip
    with tiles.trying("forward", Tile(64, 64, 4, 2, descriptors=True)):
        return bool(launch.forward(call, 90).constants["DESCRIPTORS"])


def test_only_what_is_aligned_is_read_by_descriptors(device: str) -> None:
    rows = torch.zeros(2, 2, 8, 80, dtype=torch.float16, device=device)
    assert reads_by_descriptors(rows)
    assert reads_by_descriptors(rows[..., :72])  # rows stay 160 bytes apart
    assert not reads_by_descriptors(rows[..., 1:])  # addresses are no multiple of 16 bytes
    assert not reads_by_descriptors(torch.zeros(2, 2, 8, 68, dtype=torch.float16, device=device))  # rows of 136 bytes
    # Without the hint Triton sees that a stride is a multiple of 16 elements, and no more.
    assert reads_by_descriptors(rows, "scalar_loads")
    assert not reads_by_descriptors(torch.zeros(2, 2, 8, 72, dtype=torch.float16, device=device), "scalar_loads")
