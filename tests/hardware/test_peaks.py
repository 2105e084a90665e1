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

HALF_TFLOPS = """
    2500: NVIDIA GB200, NVIDIA GB300, AMD Instinct MI355X
    2250: NVIDIA B200, NVIDIA B300 SXM6 AC
    1300: AMD Instinct MI300X, AMD Instinct MI325X
    989: NVIDIA GH200 480GB, NVIDIA H200, NVIDIA H100 80GB HBM3, NVIDIA H800
    836: NVIDIA H200 NVL
    835: NVIDIA H100 NVL
    756: NVIDIA H100 PCIe, NVIDIA H800 PCIe
    362: NVIDIA L40S
    312: NVIDIA A100-SXM4-80GB, NVIDIA A100-PCIE-40GB, NVIDIA A100 80GB PCIe
    312: NVIDIA A800-SXM4-80GB, NVIDIA A800 80GB PCIe
    191.5: AMD Instinct MI250X
    181: NVIDIA L40
    165: NVIDIA A30
    154.85: NVIDIA RTX A6000
    149.7: NVIDIA A40
    148: NVIDIA H20
    130: Tesla V100S-PCIE-32GB
    125: NVIDIA A10, Tesla V100-SXM2-16GB
    121: NVIDIA L4
    119.5: NVIDIA L20
    112: Tesla V100-PCIE-32GB
    70: NVIDIA A10G
    65: Tesla T4
"""
"""fp16, and the names that torch gives devices."""

LISTED: dict[str, float] = {}
for line in HALF_TFLOPS.strip().splitlines():
    tflops, _, names = line.partition(":")
    LISTED |= {name.strip(): float(tflops) for name in names.split(",")}

# The last are slices, by MIG, or as a hypervisor deals them out by memory and kind.
NOT_LISTED = """
    NVIDIA H800 NVL, NVIDIA H800-40C, NVIDIA A100X, NVIDIA RTX A4000, NVIDIA T400,
    NVIDIA RTX 6000 Ada Generation, NVIDIA GeForce RTX 3090, Intel(R) Xeon(R) Platinum 8480+,
    NVIDIA A100-SXM4-80GB MIG 1g.10gb, NVIDIA A100-40C, GRID A100-4C, NVIDIA A100-1-5C,
    NVIDIA A100-1-5CME, NVIDIA A40-48Q, NVIDIA A10-24A, NVIDIA L4-2B, GRID T4-16Q,
"""


def test_a_listed_device_has_its_dense_peak_and_every_line_is_the_first_for_some_device() -> None:
    assert {name: peak_flops(name, "fp16") for name in LISTED} == {
        name: tflops * 1e12 for name, tflops in LISTED.items()
    }
    first = {next(peak.name for peak in PEAKS if re.search(peak.name, name)) for name in LISTED}
    assert first == {peak.name for peak in PEAKS}


def test_an_unlisted_device_is_unknown_though_its_name_resembles_another() -> None:
    names = [name.strip() for name in NOT_LISTED.split(",")]
    assert [name for name in names if peak_flops(name, "fp16") is not None] == []


def test_a_given_peak_beats_the_sheet_s() -> None:
    assert choose_peak(given=1e15, table=2e15, measured=5e14) == (1e15, "given")


@pytest.mark.parametrize(
    ("name", "precision", "tflops"),
    [
        ("NVIDIA H100 NVL", "bf16", 835),
        ("NVIDIA H100 NVL", "tf32", 417.5),
        ("NVIDIA H100 NVL", "fp32", 60),
        ("NVIDIA A30", "fp32", None),
        ("Tesla T4", "bf16", None),
        ("Tesla T4", "tf32", None),
    ],
)
def test_a_device_has_a_peak_for_each_precision_that_its_sheet_tells(
    name: str, precision: str, tflops: float | None
) -> None:
    assert peak_flops(name, precision) == (tflops and tflops * 1e12)


def test_rates_are_dense_and_in_order() -> None:
    for _, source, tflops in PEAKS:
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


@pytest.mark.slow
def test_the_peak_of_a_core_is_that_without_the_work_beside_it(busy_core: None) -> None:
    """By this process' own time, which other work does not change."""
    beside = matmul_rates(CPU, "fp32")
    # One product may have had the core for itself.
    assert beside.alone >= beside.reached
    left, seconds = torch.rand(768, 768), []
    for _ in range(40):
        began = time.thread_time()
        left @ left
        seconds.append(time.thread_time() - began)
    by_hand = 2 * 768**3 / sorted(seconds)[20]
    assert 0.5 * by_hand < beside.alone < 2 * by_hand


def test_the_ceiling_is_measured_once_and_leaves_flags_and_random_numbers_alone(
    one_thread: None,
) -> None:
    torch.set_float32_matmul_precision("medium")
    try:
        state = torch.get_rng_state()
        first = matmul_rates(CPU, "bf16")
        assert first.alone >= first.reached > 0
        assert matmul_rates(CPU, "bf16") is first
        assert torch.get_float32_matmul_precision() == "medium"
        assert torch.equal(torch.get_rng_state(), state)
        assert torch.is_grad_enabled()
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("precision", ["tf32", "fp8"])
def test_a_precision_that_a_cpu_lacks_is_refused(precision: str) -> None:
    with pytest.raises(
        SweepError, match=f"no matrix products in '{precision}' on cpu; known: fp32, bf16, fp16$"
    ):
        matmul_flops(CPU, precision)
