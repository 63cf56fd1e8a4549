"""Kernels that misbehave, for tests of what a sweep makes of them. Each is a plain attention function."""

import os
import signal
import time

import torch


def good(q, k, v, causal):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=True)


def wrong_mask(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=False, enable_gqa=True)


def not_a_number(q, k, v):
    return torch.full_like(q, float("nan"))


def out_of_memory(q, k, v):
    return torch.empty(2**60, dtype=torch.uint8)


def cuda_out_of_memory(q, k, v):
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB")


def changes_its_input(q, k, v):
    q.zero_()
    return torch.zeros_like(v)


def changes_its_input_unseen(q, k, v, causal):
    out = good(q, k, v, causal)
    q.data.zero_()  # as a kernel does that is given its address
    return out


LEFT: list[torch.Tensor] = []


def adds_to_what_it_left(q, k, v, causal):
    LEFT[:] = [good(q, k, v, causal) + sum(LEFT)]
    return LEFT[0]


BUFFERS: dict[tuple[torch.Size, torch.device], torch.Tensor] = {}


def resets_at_launch_only(q, k, v, causal):
    """A graph's replays add to what the one before left: what resets it is not captured."""
    left = BUFFERS.setdefault((q.shape, q.device), torch.zeros_like(q)).detach()
    if not torch.cuda.is_current_stream_capturing():
        left.zero_()
    return left.add_(good(q, k, v, causal))


RIGHT_CALLS = 0


def wrong_later(q, k, v, causal):
    """Right as often as it is checked before it is timed."""
    global RIGHT_CALLS
    RIGHT_CALLS += 1
    return good(q, k, v, causal) + (RIGHT_CALLS > 2)


def broken(q, k, v):
    raise RuntimeError("a compiler\n[/] crashed [red]here")


def times_out(q, k, v):
    raise TimeoutError("took too long")


def wants_out(q, k, v):
    raise SystemExit(3)


def hangs(q, k, v):
    time.sleep(600)


def killed(q, k, v):
    os.kill(os.getpid(), signal.SIGKILL)


def crashes(q, k, v):
    os.abort()


CALLS = 0


def hangs_later(q, k, v, causal):
    """Answers rightly while it is checked, and hangs once it is timed."""
    global CALLS
    CALLS += 1
    if CALLS > 6:
        time.sleep(600)
    return good(q, k, v, causal)


def prints(q, k, v, causal):
    print('{"event": "records", "records": []}')
    return good(q, k, v, causal)
