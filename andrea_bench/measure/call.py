"""From a kernel's Work to the one call that is timed, in the Problem's direction."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from andrea_bench.kernel import OP_INPUTS, Kernel, Work
from andrea_bench.measure.inputs import detached, output_gradients
from andrea_bench.problem import Problem


class Prepared:
    """A kernel ready to be checked and timed.

    call: the launch alone: forward; or the backward pass over a graph made before; or both.
    """

    def __init__(self, kernel: Kernel, problem: Problem, inputs: Mapping[str, Tensor], *, seed: int) -> None:
        self.with_gradients = problem.direction in ("backward", "forward_backward")
        named = {name: inputs[name] for name in OP_INPUTS[kernel.op]}
        tensors = detached(named) if self.with_gradients else named
        self.work: Work = kernel.prepare(problem, tensors)
        self._leaves = list(tensors.values() if self.work.leaves is None else self.work.leaves)
        self.call: Callable[[], Any] = self._prepare_call(problem.direction, seed)

    def _prepare_call(self, direction: str, seed: int) -> Callable[[], Any]:
        run, leaves = self.work.run, self._leaves
        if not self.with_gradients:

            def forward() -> Any:
                with torch.no_grad():
                    return run()

            return forward
        if direction == "backward":
            # The graph is kept and walked many times: compiled code must not give its buffers away.
            functorch_config.donated_buffer = False
        result = run()
        flat = _flat(result)
        # The Op's output gradients, in the shapes in which this kernel returns its outputs: what turns its
        # outputs into the Op's is linear, and is not part of the kernel.
        canonical = self.work.canonical(result)
        upstream = torch.autograd.grad(canonical, flat, output_gradients(canonical, seed=seed), retain_graph=True)
        if direction == "backward":
            return lambda: torch.autograd.grad(flat, leaves, upstream, retain_graph=True)
        return lambda: torch.autograd.grad(_flat(run()), leaves, upstream)

    def outputs_and_gradients(
        self, call: Callable[[], Any] | None = None
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """The Op's output tensors and its inputs' gradients, as `call` makes them: self.call, or what a clock made of
        it. Not timed."""
        call = call or self.call
        if not self.with_gradients:
            result = call()
            _flat(result)
            return self.work.canonical(result), None
        with torch.no_grad():
            outputs = self.work.canonical(self.work.run())
        gradients = call()
        return outputs, self.work.canonical_gradients(gradients)


def _flat(result: Any) -> list[Tensor]:
    """The tensors of a kernel's result: a tensor, or (nested) tuples and lists of them."""
    if isinstance(result, Tensor):
        return [result]
    if not isinstance(result, tuple | list):
        raise TypeError(f"the kernel returned {type(result).__name__}, not a tensor or several")
    return [tensor for one in result for tensor in _flat(one)]
