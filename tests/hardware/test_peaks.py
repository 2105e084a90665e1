"""What a device could do: the table of data sheets, and the measured matrix product."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
import torch

from dtsweep.errors import SweepError
from dtsweep.hardware.peaks import PEAKS, choose_peak, matmul_flops, matmul_rates, peak_flops

CPU = torch.device("cpu")

HALF_TFLOPS = {
    "NVIDIA GB200": 2500,
    "NVIDIA GB300": 2500,
    "NVIDIA B200": 2250,
    "NVIDIA B300 SXM6 AC": 2250,
    "NVIDIA GH200 480GB": 989,
    "NVIDIA H200": 989,
    "NVIDIA H200 NVL": 836,
    "NVIDIA H100 80GB HBM3": 989,
    "NVIDIA H800": 989,
    "NVIDIA H800 PCIe": 756,
    "NVIDIA H100 NVL": 835,
    "NVIDIA H100 PCIe": 756,
    "NVIDIA H20": 148,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA A800-SXM4-80GB": 312,
    "NVIDIA A800 80GB PCIe": 312,
    "NVIDIA A40": 149.7,
    "NVIDIA A30": 165,
    "NVIDIA A10": 125,
    "NVIDIA A10G": 70,
    "NVIDIA RTX A6000": 154.85,
    "NVIDIA L40S": 362,
    "NVIDIA L40": 181,
    "NVIDIA L20": 119.5,
    "NVIDIA L4": 121,
    "Tesla V100S-PCIE-32GB": 130,
    "Tesla V100-SXM2-16GB": 125,
    "Tesla V100-PCIE-32GB": 112,
    "Tesla T4": 65,
    "AMD Instinct MI300X": 1300,
    "AMD Instinct MI325X": 1300,
    "AMD Instinct MI355X": 2500,
    "AMD Instinct MI250X": 191.5,
}
"""fp16 by the name that torch gives a device."""

NOT_LISTED = [
    "NVIDIA H800 NVL",
    "NVIDIA H800-40C",
    "NVIDIA A100X",
    "NVIDIA RTX A4000",
    "NVIDIA RTX 6000 Ada Generation",
    "NVIDIA T400",
    "NVIDIA GeForce RTX 3090",
    "NVIDIA A100-SXM4-80GB MIG 1g.10gb",
    # Slices that a hypervisor deals out, by memory and kind.
    "NVIDIA A100-40C",
    "GRID A100-4C",
    "NVIDIA A100-1-5C",
    "NVIDIA A100-1-5CME",
    "NVIDIA A40-48Q",
    "NVIDIA A10-24A",
    "NVIDIA L4-2B",
    "GRID T4-16Q",
    "Intel(R) Xeon(R) Platinum 8480+",
    "",
]


@pytest.mark.parametrize("name", HALF_TFLOPS)
def test_a_listed_device_has_its_dense_peak(name: str) -> None:
    assert peak_flops(name, "fp16") == HALF_TFLOPS[name] * 1e12


def test_every_line_of_the_table_is_the_first_for_some_device() -> None:
    first = {
        next(peak.name for peak in PEAKS if re.search(peak.name, name)) for name in HALF_TFLOPS
    }
    assert first == {peak.name for peak in PEAKS}


@pytest.mark.parametrize("name", NOT_LISTED)
def test_an_unlisted_device_is_unknown_though_its_name_resembles_another(name: str) -> None:
    assert peak_flops(name, "fp16") is None


@pytest.mark.parametrize(
    ("given", "table", "chosen"),
    [
        (1e15, 2e15, (1e15, "given")),
        (1e15, None, (1e15, "given")),
        (None, 2e15, (2e15, "table")),
        (None, None, (5e14, "measured")),
    ],
)
def test_a_device_that_no_sheet_tells_of_has_the_peak_that_it_reaches(
    given: float | None, table: float | None, chosen: tuple[float, str]
) -> None:
    assert choose_peak(given=given, table=table, measured=5e14) == chosen


def test_a_precision_that_a_device_lacks_is_unknown() -> None:
    assert peak_flops("Tesla T4", "bf16") is None
    assert peak_flops("Tesla T4", "tf32") is None
    assert peak_flops("NVIDIA A30", "fp32") is None
    assert peak_flops("NVIDIA H100 80GB HBM3", "fp8") is None


def test_a_device_has_a_peak_for_each_precision_that_its_sheet_tells() -> None:
    rates = {
        precision: peak_flops("NVIDIA H100 NVL", precision)
        for precision in ("bf16", "tf32", "fp32")
    }
    assert rates == {"bf16": 835e12, "tf32": 417.5e12, "fp32": 60e12}


@pytest.mark.parametrize("peak", PEAKS, ids=lambda peak: peak.name)
def test_rates_are_dense_and_in_order(peak: tuple[str, str, dict[str, float]]) -> None:
    _, source, tflops = peak
    assert source
    if "bf16" in tflops:
        assert tflops["fp16"] == tflops["bf16"]
    if "tf32" in tflops:
        assert tflops["tf32"] == pytest.approx(tflops["bf16"] / 2, rel=0.02)
        assert tflops["fp32"] <= tflops["tf32"]


@pytest.fixture
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    matmul_rates.cache_clear()
    yield
    matmul_rates.cache_clear()
    torch.set_num_threads(threads)


def test_the_ceiling_is_what_a_large_product_reaches(one_thread: None) -> None:
    left, seconds, found = torch.rand(768, 768), [], []
    # The best of several of each, in turns: other processes take cores away.
    for _ in range(3):
        matmul_rates.cache_clear()
        found.append(matmul_flops(CPU, "fp32"))
        for _ in range(10):
            began = time.perf_counter()
            left @ left
            seconds.append(time.perf_counter() - began)
    by_hand = 2 * 768**3 / min(seconds)
    assert 0.5 * by_hand < max(found) < 2 * by_hand


@pytest.fixture
def busy_core(one_thread: None) -> Iterator[None]:
    """This process on one core, with two others that never rest."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
    yield
    os.sched_setaffinity(0, before)
    for other in others:
        other.kill()
        other.wait()


def test_the_peak_of_a_core_is_that_without_the_work_beside_it(busy_core: None) -> None:
    beside = matmul_rates(CPU, "fp32")
    # One product may have had the core for itself.
    assert beside.alone >= beside.reached
    left, seconds = torch.rand(768, 768), []
    for _ in range(40):
        began = time.thread_time()
        left @ left
        seconds.append(time.thread_time() - began)
    by_hand = 2 * 768**3 / sorted(seconds)[20]
    assert 0.6 * by_hand < beside.alone < 1.6 * by_hand


def test_the_ceiling_is_measured_once_per_precision(one_thread: None) -> None:
    assert matmul_flops(CPU, "bf16") > 0
    began = time.perf_counter()
    first = matmul_flops(CPU, "bf16")
    assert time.perf_counter() - began < 0.1
    assert matmul_flops(CPU, "bf16") == first


def test_measuring_leaves_flags_and_random_numbers_alone(one_thread: None) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        state = torch.get_rng_state()
        matmul_flops(CPU, "fp32")
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.is_grad_enabled()
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["tf32", "fp16", "fp8"])
def test_a_precision_that_a_cpu_lacks_is_refused(precision: str) -> None:
    with pytest.raises(
        SweepError, match=f"no matrix products in '{precision}' on cpu; known: fp32, bf16$"
    ):
        matmul_flops(CPU, precision)
