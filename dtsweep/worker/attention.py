"""Kernels of `scaled_dot_product_attention`: the axis `attention`, and those that ran."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dtsweep.sync.compiled import is_compiled

_BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
_NONE_FITS = ("No available kernel", "No viable backend", "Invalid backend")
"""Parts of torch's messages where the chosen kernel can't have the tensors."""


@contextlib.contextmanager
def attention_kernel(name: str | None) -> Iterator[None]:
    """Have attention computed by one kernel, in backward, too; None leaves the choice to torch.

    Raises:
        ValueError: the kernel can't have the model's tensors; names the axis and the next step.
    """
    if name is None:
        yield
        return
    try:
        with sdpa_kernel(_BACKENDS[name]):
            yield
    except RuntimeError as error:
        if not any(words in str(error) for words in _NONE_FITS):
            raise
        raise ValueError(
            f"attention={name} has no kernel for the model's tensors on this device (type, mask, "
            "size of a head); use another one, or None, which lets torch choose"
        ) from error


class _Kernels(TorchDispatchMode):
    """Names of the fused kernels of attention that run under it."""

    names: frozenset[str] = frozenset()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name.startswith("_scaled_dot_product"):
            self.names |= {name}
        return func(*args, **(kwargs or {}))


class AttentionRan(TorchFunctionMode):
    """A loss whose first call is watched; in a compiled model no kernel has a name."""

    names: frozenset[str] = frozenset()
    """Kernels of attention by torch's names."""

    def __init__(self, loss: Callable[[nn.Module, Any], torch.Tensor]) -> None:
        """Take the loss of a trial."""
        super().__init__()
        self._loss, self._is_over = loss, False

    def __call__(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Compute the loss."""
        if self._is_over:
            return self._loss(model, batch)
        self._is_over = True
        # In a pipeline the model is called elsewhere.
        if not isinstance(model, nn.Module) or is_compiled(model):
            return self._loss(model, batch)
        with self:
            return self._loss(model, batch)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, and note its kernels where it is attention."""
        if getattr(func, "__name__", "") != "scaled_dot_product_attention":
            return func(*args, **(kwargs or {}))
        with _Kernels() as kernels:  # type: ignore[no-untyped-call]  # has no types in torch
            result = func(*args, **(kwargs or {}))
        # Two matrix products run as such, not by this name.
        self.names |= kernels.names or {"_scaled_dot_product_attention_math"}
        return result
