"""Process-wide settings of torch are given back, one by one and all at once."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dtsweep.hardware.backend_flags import backend_flags_kept, put_flags, read_flags

CHANGES: dict[str, Callable[[], Any]] = {
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(mode=True),
    "deterministic, warning only": lambda: torch.use_deterministic_algorithms(
        mode=True, warn_only=True
    ),
    "memory filled": lambda: setattr(torch.utils.deterministic, "fill_uninitialized_memory", False),
    "flash attention": lambda: torch.backends.cuda.enable_flash_sdp(enabled=False),
    "efficient attention": lambda: torch.backends.cuda.enable_mem_efficient_sdp(enabled=False),
    "plain attention": lambda: torch.backends.cuda.enable_math_sdp(enabled=False),
    "attention of cuDNN": lambda: torch.backends.cuda.enable_cudnn_sdp(enabled=False),
    "attention in half precision": lambda: torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(
        enabled=True
    ),
    "threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "default type": lambda: torch.set_default_dtype(torch.float64),
    "default device": lambda: torch.set_default_device("meta"),
    "products": lambda: torch.set_float32_matmul_precision("medium"),
    "products in bf16": lambda: setattr(torch.backends.cuda.matmul, "fp32_precision", "tf32"),
    "convolutions": lambda: setattr(torch.backends.cudnn.conv, "fp32_precision", "ieee"),
    "recurrent nets": lambda: setattr(torch.backends.cudnn.rnn, "fp32_precision", "ieee"),
    "everything": lambda: setattr(torch.backends, "fp32_precision", "ieee"),
    "oneDNN": lambda: setattr(torch.backends.mkldnn, "fp32_precision", "bf16"),
    "products of oneDNN": lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
    "sums of fp16": lambda: setattr(
        torch.backends.cuda.matmul, "allow_fp16_reduced_precision_reduction", False
    ),
    "sums of bf16": lambda: setattr(
        torch.backends.cuda.matmul, "allow_bf16_reduced_precision_reduction", False
    ),
    "sums in fp16": lambda: setattr(torch.backends.cuda.matmul, "allow_fp16_accumulation", True),
    "cuDNN": lambda: setattr(torch.backends.cudnn, "enabled", False),
    "cuDNN's choice": lambda: setattr(torch.backends.cudnn, "benchmark", True),
    "cuDNN deterministic": lambda: setattr(torch.backends.cudnn, "deterministic", True),
    "TF32 of cuDNN": lambda: setattr(torch.backends.cudnn, "allow_tf32", False),
    "oneDNN itself": lambda: setattr(torch.backends.mkldnn, "enabled", False),
    "oneDNN deterministic": lambda: setattr(torch.backends.mkldnn, "deterministic", True),
    "fast path": lambda: torch.backends.mha.set_fastpath_enabled(value=False),
    "gradients": lambda: torch.set_grad_enabled(mode=False),
    "anomalies": lambda: torch.autograd.set_detect_anomaly(mode=True),
    "autocast": lambda: torch.set_autocast_enabled("cpu", enabled=True),
    "type of autocast": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "collector": gc.disable,
    "thresholds": lambda: gc.set_threshold(7),
    "no more settings": torch.backends.disable_global_flags,
}


@pytest.fixture(autouse=True)
def _as_it_was() -> Any:
    """So that a failure here costs no other test."""
    before = read_flags()
    yield
    put_flags(before)


@pytest.mark.parametrize("what", CHANGES)
def test_a_setting_is_given_back(what: str) -> None:
    before = read_flags()
    with backend_flags_kept():
        CHANGES[what]()
        assert read_flags() != before
    assert read_flags() == before


def test_all_settings_are_given_back_in_whatever_order_they_were_made() -> None:
    before = read_flags()
    *others, freeze = CHANGES.values()
    for changes in ([*others, freeze], [*others[::-1], freeze]):
        with pytest.raises(ValueError, match="in the middle"), backend_flags_kept():
            for change in changes:
                change()
            raise ValueError("in the middle")
        assert read_flags() == before


def test_what_nobody_sets_is_not_touched() -> None:
    with backend_flags_kept():
        pass
    # A default device, were it the CPU itself, would take part in every call.
    assert getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None) is None
