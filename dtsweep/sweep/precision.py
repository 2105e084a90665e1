"""Precisions that an axis may name: one table for sweep files, ranks, FLOP counts and doctor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, kw_only=True)
class _Precision:
    """Precision of a trial's matrix products; parameters stay in fp32."""

    dtype: str
    """torch's name of the numbers that a product multiplies."""

    is_autocast: bool = False
    """True if the loss is computed under `torch.autocast` to that type."""

    is_tf32: bool = False
    """True if products of fp32 numbers may round them to TensorFloat-32."""

    is_scaled: bool = False
    """True if the loss is scaled, because its gradients are too small for the type."""

    compute_capability: tuple[int, int] | None = None
    """Lowest compute capability of a CUDA GPU with this type in hardware; None if all have it."""

    needs_gpu: bool = False
    """True if a CPU, or a GPU below `compute_capability`, would do something else by this name."""

    def is_beyond(self, capability: tuple[int, int] | None) -> bool:
        """True if a GPU of this compute capability is known not to have the type in hardware."""
        if capability is None or self.compute_capability is None:
            return False
        return capability < self.compute_capability


PRECISIONS: Mapping[str, _Precision] = MappingProxyType(
    {
        "fp32": _Precision(dtype="float32"),
        "tf32": _Precision(
            dtype="float32", is_tf32=True, compute_capability=(8, 0), needs_gpu=True
        ),
        "bf16": _Precision(dtype="bfloat16", is_autocast=True, compute_capability=(8, 0)),
        "fp16": _Precision(dtype="float16", is_autocast=True, is_scaled=True),
    }
)
"""Every precision by the name that an axis uses."""
