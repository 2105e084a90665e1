"""Process-wide settings of torch and Python, restored after code that may change them."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache, partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch

_ATTRIBUTES = (
    "backends.cudnn.enabled",
    "backends.cudnn.benchmark",
    "backends.cudnn.deterministic",
    "backends.cudnn.allow_tf32",
    "backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
    "backends.cuda.matmul.allow_fp16_accumulation",
    "backends.mkldnn.enabled",
    "backends.mkldnn.deterministic",
    "backends.mkldnn.allow_tf32",
)
"""Settings that are read and set as attributes, below `torch`."""

_FUNCTIONS = {
    "get_num_threads": "set_num_threads",
    "get_default_dtype": "set_default_dtype",
    "get_float32_matmul_precision": "set_float32_matmul_precision",
    "is_grad_enabled": "set_grad_enabled",
    "backends.cuda.flash_sdp_enabled": "backends.cuda.enable_flash_sdp",
    "backends.cuda.mem_efficient_sdp_enabled": "backends.cuda.enable_mem_efficient_sdp",
    "backends.cuda.math_sdp_enabled": "backends.cuda.enable_math_sdp",
    "backends.cuda.cudnn_sdp_enabled": "backends.cuda.enable_cudnn_sdp",
    "backends.cuda.preferred_blas_library": "backends.cuda.preferred_blas_library",
}
"""Settings with a function that reads and one that sets, below `torch`."""

_FP32_PRECISIONS = (
    ("generic", "all"),
    *(
        (backend, operation)
        for backend in ("cuda", "mkldnn")
        for operation in ("all", "matmul", "conv", "rnn")
    ),
)
"""Of `fp32_precision`, the whole before its parts: setting it sets them."""

_MIXED = object()


class _Flag(NamedTuple):
    """One setting of this process."""

    read: Callable[[], Any]
    put: Callable[[Any], Any]


@contextmanager
def backend_flags_kept() -> Iterator[None]:
    """Restore every setting, however the code inside ends."""
    before = read_flags()
    try:
        yield
    finally:
        put_flags(before)


def read_flags() -> dict[str, Any]:
    """Read the settings of this process by name, those that this version of torch has."""
    read = {name: _value(flag) for name, flag in _flags().items()}
    return {name: value for name, value in read.items() if value is not _MIXED}


def put_flags(before: Mapping[str, Any]) -> None:
    """Set what differs back to what `read_flags` gave."""
    flags = _flags()
    # Twice: the older settings of TF32 set the newer ones, and can't be read where those are mixed.
    for name, value in [*before.items()] * 2:
        if _value(flags[name]) != value:
            flags[name].put(value)


def _value(flag: _Flag) -> Any:
    try:
        return flag.read()
    except RuntimeError:
        # Torch refuses to say whether TF32 is allowed where it is for some operations only.
        return _MIXED


@cache
def _flags() -> dict[str, _Flag]:
    """All settings that this version of torch has, by name."""
    flags = _fp32_precisions()
    for path in _ATTRIBUTES:
        place, _, name = path.rpartition(".")
        owner = attrgetter(place)(torch)
        flags[path] = _Flag(partial(getattr, owner, name), partial(setattr, owner, name))
    for read, put in _FUNCTIONS.items():
        flags[read] = _Flag(attrgetter(read)(torch), attrgetter(put)(torch))
    return flags | _particular()


def _fp32_precisions() -> dict[str, _Flag]:
    """Precision of fp32 by backend and operation.

    torch's own attribute of oneDNN sets it for all backends.
    """
    if not hasattr(torch._C, "_get_fp32_precision_getter"):
        return {}  # torch 2.8
    read = torch._C._get_fp32_precision_getter
    put = torch._C._set_fp32_precision_setter
    return {
        f"fp32_precision of {backend} {operation}": _Flag(
            partial(read, backend, operation), partial(put, backend, operation)
        )
        for backend, operation in _FP32_PRECISIONS
    }


def _particular() -> dict[str, _Flag]:
    """Flags that need more than one call, or are Python's own."""
    return {
        "deterministic_algorithms": _Flag(
            lambda: (
                torch.are_deterministic_algorithms_enabled(),
                torch.is_deterministic_algorithms_warn_only_enabled(),
            ),
            lambda state: torch.use_deterministic_algorithms(state[0], warn_only=state[1]),
        ),
        "anomaly": _Flag(
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda state: torch.set_anomaly_enabled(*state),
        ),
        "default_device": _Flag(_default_device, torch.set_default_device),
        "garbage": _Flag(lambda: (gc.isenabled(), gc.get_threshold()), _put_garbage),
    }


def _default_device() -> torch.device | None:
    """The default device; None if none is set, since setting the CPU would slow every call down."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return getattr(context, "device", None)


def _put_garbage(state: tuple[bool, tuple[int, int, int]]) -> None:
    is_enabled, threshold = state
    if is_enabled:
        gc.enable()
    else:
        gc.disable()
    gc.set_threshold(*threshold)
