"""Peak rate of a device: from its data sheet, and reached by a large matrix product."""

from __future__ import annotations

import functools
import itertools
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import torch

from dtsweep.errors import SweepError
from dtsweep.hardware.memory import release_memory
from dtsweep.sweep.precision import PRECISIONS

_MATMUL_S = 0.3
"""Time for which matrix products are tried."""

_PRODUCT_S = 0.02
"""Target time of one product on a CPU: long enough for all threads, short enough for many tries."""

_GPU_SIZE = 8192
"""Rows and columns of a product on a GPU: 1 to 20 ms on the devices below, in at most 0.8 GB."""

_Factors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Left, right, and room for their product."""


class _MatmulRates(NamedTuple):
    """FLOP/s of a large matrix product."""

    reached: float
    """By the clock: on a CPU less if others work at the same time."""

    alone: float
    """Rate by consumed CPU time, which other work does not change; on a GPU equal to `reached`."""


class _Peak(NamedTuple):
    """Dense rates of a device, in TFLOP/s by precision; a missing precision is unknown."""

    name: str
    """A regular expression, searched in the device's name as torch and NVML give it."""
    source: str
    tflops: Mapping[str, float]


def _tensor_cores(
    half: float, tf32: float | None = None, fp32: float | None = None
) -> dict[str, float]:
    rates = {"bf16": half, "fp16": half, "tf32": tf32, "fp32": fp32}
    return {precision: rate for precision, rate in rates.items() if rate is not None}


# The sheets of Ampere and later print rates with sparsity, twice what is here. fp32 is without
# tensor cores.
PEAKS: tuple[_Peak, ...] = (
    _Peak(
        r"\bGB200\b",
        "NVIDIA Blackwell data sheet, GB200 NVL72 per GPU",
        _tensor_cores(2500, 1250, 80),
    ),
    _Peak(r"\bGB300\b", "torchtitan get_peak_flops", _tensor_cores(2500)),
    _Peak(
        r"\bB[23]00\b",
        "NVIDIA HGX B200 and B300 data sheets, an eighth",
        _tensor_cores(2250, 1125, 75),
    ),
    _Peak(r"\bGH200\b", "NVIDIA GH200 data sheet", _tensor_cores(989)),
    _Peak(r"\bH200 NVL\b", "nanochat get_peak_flops", _tensor_cores(836)),
    _Peak(r"\bH200\b", "NVIDIA H200 data sheet, SXM", _tensor_cores(989, 494.5, 67)),
    _Peak(r"\bH100 NVL\b", "NVIDIA H100 data sheet, NVL", _tensor_cores(835, 417.5, 60)),
    # The A800 and H800 are the A100 and H100 with slower NVLink and, the H800, slower fp64.
    _Peak(r"\bH[18]00 PCIe\b", "NVIDIA H100 data sheet, PCIe", _tensor_cores(756, 378, 51)),
    _Peak(
        r"\bH100\b.*(HBM3|SXM)|\bH800$",
        "NVIDIA H100 data sheet, SXM",
        _tensor_cores(989, 494.5, 67),
    ),
    _Peak(r"\bH20\b", "torchtitan get_peak_flops", _tensor_cores(148)),
    _Peak(r"\bA[18]00\b", "NVIDIA A100 data sheet", _tensor_cores(312, 156, 19.5)),
    _Peak(r"\bA40\b", "NVIDIA A40 data sheet", _tensor_cores(149.7, 74.8, 37.4)),
    _Peak(r"\bA30\b", "NVIDIA A30 data sheet", _tensor_cores(165)),
    _Peak(r"\bA10\b", "NVIDIA A10 data sheet", _tensor_cores(125, 62.5, 31.2)),
    _Peak(r"\bA10G\b", "NVIDIA A10G data sheet (AWS)", _tensor_cores(70, 35, 35)),
    _Peak(
        r"\bRTX A6000\b",
        "torchtitan get_peak_flops; fp32: NVIDIA RTX A6000 data sheet",
        _tensor_cores(154.85, fp32=38.7),
    ),
    _Peak(r"\bL40S\b", "NVIDIA L40S data sheet", _tensor_cores(362, 183, 91.6)),
    _Peak(r"\bL40\b", "NVIDIA L40 data sheet", _tensor_cores(181, 90.5, 90.5)),
    _Peak(r"\bL20\b", "veRL get_device_flops", _tensor_cores(119.5)),
    _Peak(r"\bL4\b", "NVIDIA L4 data sheet", _tensor_cores(121, 60, 30.3)),
    _Peak(r"\bV100S-PCIE\b", "NVIDIA V100 data sheet", {"fp16": 130, "fp32": 16.4}),
    _Peak(r"\bV100-SXM2\b", "NVIDIA V100 data sheet", {"fp16": 125, "fp32": 15.7}),
    _Peak(r"\bV100-PCIE\b", "NVIDIA V100 data sheet", {"fp16": 112, "fp32": 14}),
    _Peak(r"\bT4\b", "NVIDIA T4 data sheet", {"fp16": 65, "fp32": 8.1}),
    _Peak(
        r"\bMI3(00|25)X\b",
        "AMD Instinct product pages (torchtitan get_peak_flops)",
        _tensor_cores(1300),
    ),
    _Peak(
        r"\bMI355X\b", "AMD Instinct product page (torchtitan get_peak_flops)", _tensor_cores(2500)
    ),
    _Peak(
        r"\bMI250X\b",
        "AMD Instinct product page, per die (torchtitan get_peak_flops)",
        _tensor_cores(191.5),
    ),
)
"""The first whose name fits counts."""

SLICE = re.compile(r"\bMIG\b|-\d+[ABCQ](ME)?$")
"""In the name of a part of a device: by MIG, or by a hypervisor (vGPU), as in `A100-40C`."""


def peak_flops(device_name: str, precision: str) -> float | None:
    """Look up the dense peak of a device.

    Returns:
        FLOP/s; None where the table has no such device or precision, and for a slice of a device
        (MIG, vGPU).

    >>> peak_flops("NVIDIA H100 80GB HBM3", "bf16"), peak_flops("NVIDIA H100 80GB HBM3", "fp8")
    (989000000000000.0, None)
    """
    if SLICE.search(device_name):
        return None
    rates = next((peak.tflops for peak in PEAKS if re.search(peak.name, device_name)), {})
    if precision not in rates:
        return None
    return rates[precision] * 1e12


def choose_peak(*, given: float | None, table: float | None, measured: float) -> tuple[float, str]:
    """Choose the peak of a device, in FLOP/s, and name its source as `peak_source` does.

    Args:
        given: by the sweep; None if it gives none.
        table: by `peak_flops`; None if that has no such device or precision.
        measured: by `matmul_rates`. It is below the data sheet's peak: a share of it is higher.

    >>> choose_peak(given=None, table=None, measured=5e13)
    (50000000000000.0, 'measured')
    >>> choose_peak(given=None, table=1e14, measured=5e13)
    (100000000000000.0, 'table')
    """
    if given is not None:
        return given, "given"
    if table is not None:
        return table, "table"
    return measured, "measured"


def matmul_flops(device: torch.device, precision: str) -> float:
    """Rate of large square matrix products, in FLOP/s: the first of `matmul_rates`."""
    return matmul_rates(device, precision).reached


@functools.cache
def matmul_rates(device: torch.device, precision: str, *, other_ranks: int = 0) -> _MatmulRates:  # noqa: ARG001  # a key
    """Measure the rate of large square matrix products in about 0.3 s, once per process and world.

    A CPU uses the threads that torch has. The memory of the products, up to 0.8 GB on a GPU, is
    released and counts in no peak; torch's flags and random state stay as they are.

    Args:
        device: where to.
        precision: of a point; bf16 with factors in it, as autocast has them.
        other_ranks: number of other ranks that measure at once; on a CPU they slow each other down.

    Returns:
        FLOP/s, two per multiplication and addition: of the best product, and by the CPU time of
        all.

    Raises:
        SweepError: the device has no such precision.
    """
    available = {
        name: settings
        for name, settings in PRECISIONS.items()
        if device.type == "cuda" or not settings.needs_gpu
    }
    if precision not in available:
        raise SweepError(
            f"no matrix products in {precision!r} on {device.type}; known: {', '.join(available)}"
        )
    with _fp32_products(is_tf32=available[precision].is_tf32), torch.no_grad():
        dtype = getattr(torch, available[precision].dtype)
        if device.type == "cuda":
            rates = _flops_on_gpu(device, dtype)
        else:
            rates = _flops_on_cpu(dtype)
    release_memory(device)
    return rates


def _flops_on_cpu(dtype: torch.dtype) -> _MatmulRates:
    """Enlarge the product until it takes about `_PRODUCT_S`, then repeat it.

    Returns the best time, and the CPU time of all repeats.
    """
    size, device = 256, torch.device("cpu")
    # A small product is slow for its size, so the first guess is too small as well: guess again
    # from there.
    for _ in range(3):
        factors = _factors(size, dtype, device)
        product_s = min(_product_s(factors) for _ in range(3))
        size = max(64, 64 * round(size * (_PRODUCT_S / product_s) ** (1 / 3) / 64))
    factors = _factors(size, dtype, device)
    end = time.perf_counter() + _MATMUL_S
    began_s = time.process_time()
    products_s = [_product_s(factors)]
    while time.perf_counter() < end:
        products_s.append(_product_s(factors))
    # Threads that wait for each other may use CPU time for it, so this is rather too long for
    # several of them.
    alone_s = (time.process_time() - began_s) / torch.get_num_threads() / len(products_s)
    best_s = min(products_s)
    # No time at all: a clock that counts whole ticks.
    return _MatmulRates(
        reached=2 * size**3 / best_s, alone=2 * size**3 / min(best_s, alone_s or best_s)
    )


def _product_s(factors: _Factors) -> float:
    left, right, product = factors
    began = time.perf_counter()
    torch.mm(left, right, out=product)
    return time.perf_counter() - began


def _flops_on_gpu(device: torch.device, dtype: torch.dtype) -> _MatmulRates:
    """Queue products with an event before and after each: FLOP/s of the best."""
    left, right, product = _factors(_GPU_SIZE, dtype, device)
    stream = torch.cuda.current_stream(device)
    torch.mm(left, right, out=product)
    torch.cuda.synchronize(device)
    best_s = float("inf")
    end = time.perf_counter() + _MATMUL_S
    while time.perf_counter() < end:
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(11)]
        marks[0].record(stream)
        for mark in marks[1:]:
            torch.mm(left, right, out=product)
            mark.record(stream)
        torch.cuda.synchronize(device)
        best_s = min(
            best_s,
            *(before.elapsed_time(after) / 1e3 for before, after in itertools.pairwise(marks)),
        )
    return _MatmulRates(reached=2 * _GPU_SIZE**3 / best_s, alone=2 * _GPU_SIZE**3 / best_s)


def _factors(size: int, dtype: torch.dtype, device: torch.device) -> _Factors:
    """Two factors and room for the product; random, because a GPU is faster on zeros."""
    generator = torch.Generator(device).manual_seed(0)
    left, right = (
        torch.randn(size, size, device=device, generator=generator).to(dtype) for _ in range(2)
    )
    return left, right, torch.empty_like(left)


@contextmanager
def _fp32_products(*, is_tf32: bool) -> Iterator[None]:
    """Let fp32 be fp32, and tf32 be tf32, for a while."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if is_tf32 else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
