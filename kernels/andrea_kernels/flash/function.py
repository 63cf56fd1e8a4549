"""Attention on tensors: arguments checked, tensors allocated, launches made."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from andrea_kernels.devices import architecture, interpreted
from andrea_kernels.flash import launch
from andrea_kernels.flash.launch import LARGEST_HEAD_DIM, VARIANTS, Call

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
# Blocks in y and z of a launch (CUDA programming guide, technical specifications).
LARGEST_GRID = 65535


def attention(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool = False, scale: float | None = None, variant: str = "exact"
) -> Tensor:
    """softmax(scale Q K^T) V, as documented at `andrea_kernels.attention`."""
    check(q, k, v, variant)
    if scale is None:
        scale = q.shape[-1] ** -0.5
    if scale < 0:  # the kernels take the largest score before they scale
        q, scale = -q, -scale
    return differentiable(q, k, v, causal=causal, scale=scale, variant=variant, precision="ieee")


def differentiable(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float, variant: str, precision: str
) -> Tensor:
    """Attention of checked arguments, scale not negative, with gradients."""
    return _Attention.apply(q, k, v, causal, scale, variant, precision)


class _Attention(torch.autograd.Function):
    """Forward saves what it read, what it wrote and the log-sum of each row; backward makes the weights anew."""

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, causal: bool, scale: float, variant: str, precision: str
    ) -> Tensor:
        ctx.options = {"causal": causal, "scale": scale, "variant": variant, "precision": precision}
        out, log_sum, run = prepare_forward(q, k, v, **ctx.options)
        run()
        ctx.save_for_backward(q, k, v, out, log_sum)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, do: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, log_sum = ctx.saved_tensors
        dq, dk, dv = gradients(q, k, v, out, log_sum, do, wanted=ctx.needs_input_grad[:3], **ctx.options)
        return dq, dk, dv, None, None, None, None


def gradients(
    q: Tensor, k: Tensor, v: Tensor, out: Tensor, log_sum: Tensor, do: Tensor, *,
    wanted: tuple[bool, bool, bool], causal: bool, scale: float, variant: str, precision: str,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:  # fmt: skip
    """dq, dk, dv, contiguous, from the gradient `do` of out; None for those that are not wanted."""
    if do.stride(-1) != 1:  # as autograd hands on the gradient of a sum: expanded from one element
        do = do.contiguous()
    dq, dk, dv = (torch.empty(t.shape, dtype=t.dtype, device=t.device) for t in (q, k, v))
    strided = {"q": q, "k": k, "v": v, "out": out, "do": do, "dq": dq, "dk": dk, "dv": dv}
    call = describe(strided, causal=causal, scale=scale, variant=variant, precision=precision)
    tensors = strided | {"log_sum": log_sum, "delta": torch.empty_like(log_sum)}
    makers = [launch.delta, *[launch.dkv] * any(wanted[1:]), *[launch.dq] * wanted[0]]
    for make in makers:
        on_device(q.device, make(call, architecture(q.device)).bind(tensors))()
    return dq if wanted[0] else None, dk if wanted[1] else None, dv if wanted[2] else None


def prepare_forward(
    q: Tensor, k: Tensor, v: Tensor, *, causal: bool, scale: float, variant: str, precision: str
) -> tuple[Tensor, Tensor, Callable[[], None]]:
    """out, the log-sums (batch, n_head, seq_len), and the launch that fills them."""
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)  # (batch, n_head, seq_len, head_dim)
    log_sum = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    call = describe({"q": q, "k": k, "v": v, "out": out}, causal=causal, scale=scale, variant=variant,
                    precision=precision)  # fmt: skip
    made = launch.forward(call, architecture(q.device))
    run = made.bind({"q": q, "k": k, "v": v, "out": out, "log_sum": log_sum})
    return out, log_sum, on_device(q.device, run)


def on_device(device: torch.device, run: Callable[[], None]) -> Callable[[], None]:
    """`run` on `device`, which Triton does not look at: it launches on the current one."""
    if device.type != "cuda" or device.index == torch.cuda.current_device():
        return run

    def run_there() -> None:
        with torch.cuda.device(device):
            run()

    return run_there


def describe(tensors: dict[str, Tensor], *, causal: bool, scale: float, variant: str, precision: str) -> Call:
    """The Call that these tensors make."""
    q, k = tensors["q"], tensors["k"]
    return Call(
        batch=q.shape[0], n_head=q.shape[1], n_kv_head=k.shape[1], seq_len=q.shape[2], kv_len=k.shape[2],
        head_dim=q.shape[3], dtype=str(q.dtype).removeprefix("torch."), precision=precision, causal=causal,
        scale=scale, variant=variant, strides={name: outer_strides(t) for name, t in tensors.items()},
        emulate_bf16=interpreted() and q.dtype == torch.bfloat16,
        aligned=all(tensor.data_ptr() % 16 == 0 for tensor in tensors.values()),
    )  # fmt: skip


def outer_strides(tensor: Tensor) -> launch.Strides:
    """Strides of batch, head and row. A dimension of size 1 is never stepped over, and torch leaves its
    stride to chance; that of a contiguous tensor stands in, for one binary to serve where one can."""
    batch, head, row = (
        stride if size > 1 else like
        for size, stride, like in zip(
            tensor.shape, tensor.stride(), launch.contiguous_strides(*tensor.shape), strict=False
        )
    )
    return batch, head, row


def check(q: Tensor, k: Tensor, v: Tensor, variant: str) -> None:
    """Raise ValueError, naming the argument and what it must be, for what the kernels can't do."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.dim() != 4:
            raise ValueError(f"{name} must have 4 dimensions (batch, heads, length, head_dim), not {tensor.dim()}")
        if tensor.dtype not in DTYPES:
            raise ValueError(f"{name} must be float16, bfloat16 or float32, not {str(tensor.dtype)[6:]}")
        if tensor.dtype != q.dtype:
            raise ValueError(f"{name} must have the dtype of q, {str(q.dtype)[6:]}, not {str(tensor.dtype)[6:]}")
        if tensor.device != q.device:
            raise ValueError(f"{name} must be on the device of q, {q.device}, not on {tensor.device}")
        if tensor.shape[3] > 1 and tensor.stride(3) != 1:
            raise ValueError(f"{name} must have a last stride of 1, not {tensor.stride(3)}; .contiguous() makes it so")
    if q.device.type != ("cpu" if interpreted() else "cuda"):
        needed = "on the CPU with TRITON_INTERPRET=1" if interpreted() else "on a CUDA device"
        raise ValueError(f"q must be {needed}, not on {q.device}")
    batch, n_head, _, head_dim = q.shape
    if max(batch, n_head) > LARGEST_GRID:
        raise ValueError(f"q must have at most {LARGEST_GRID} sequences and heads, not {tuple(q.shape[:2])}")
    if not 1 <= head_dim <= LARGEST_HEAD_DIM:
        raise ValueError(f"q must have a head_dim of 1 to {LARGEST_HEAD_DIM}, not {head_dim}")
    if k.shape[0] != batch or k.shape[3] != head_dim:
        raise ValueError(f"k must be ({batch}, n_kv_head, kv_len, {head_dim}) like q, not {tuple(k.shape)}")
    if v.shape != k.shape:
        raise ValueError(f"v must have the shape of k, {tuple(k.shape)}, not {tuple(v.shape)}")
    if k.shape[1] == 0 or n_head % k.shape[1]:
        raise ValueError(f"k must have a number of heads that divides the {n_head} of q, not {k.shape[1]}")
    if variant not in VARIANTS:
        raise ValueError(f"variant must be one of {', '.join(VARIANTS)}, not {variant!r}")
