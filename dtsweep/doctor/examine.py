"""Examination of one device, in a process on its node: rates, counters, versions."""

from __future__ import annotations

from typing import Any

from dtsweep.provenance.versions import all_versions
from dtsweep.sweep.precision import PRECISIONS

Row = dict[str, Any]
"""Row of one node: the values of `examine`, `node_id`, and those of `merged`.

A node that could not be examined has `node_id`, `node` and `error`.
"""


def examine(with_gpu: bool) -> Row:
    """Examine the node that this process is on, and one of its devices.

    Returns:
        `node`, `device`, `is_gpu` and `threads`; `rates`, by precision as `compare_with_peak` gives
        them; whether `nvml` (None without a GPU, and for a slice of one) and `rapl` tell energy;
        `clock_source`; `versions`; `misses_gpu`; `gpus`, a list
        of the one GPU or none: `gpu`, its index by NVML; `pci_bus_id`, `device`, `rates`,
        and `moved_bytes_per_s`.
    """
    import torch

    from dtsweep.hardware.bandwidth import operation_rates
    from dtsweep.hardware.device import compute_capability
    from dtsweep.hardware.fingerprint import fingerprint
    from dtsweep.hardware.host import cpu_energy_counters
    from dtsweep.hardware.nvml import find_gpu
    from dtsweep.hardware.peaks import SLICE, matmul_flops, peak_flops

    is_gpu = with_gpu and torch.cuda.is_available()
    device = torch.device("cuda", 0) if is_gpu else torch.device("cpu")
    facts = fingerprint(device)
    rates = {
        precision: compare_with_peak(
            matmul_flops(device, precision), peak_flops(facts["device"], precision)
        )
        for precision, declared in PRECISIONS.items()
        if not declared.needs_gpu or (is_gpu and not declared.is_beyond(compute_capability(device)))
    }
    gpus = []
    tells_energy = None
    if is_gpu:
        gpu = find_gpu(facts["device_uuid"])
        gpus.append(
            {
                "gpu": gpu and gpu.ask("nvmlDeviceGetIndex"),
                "pci_bus_id": facts["pci_bus_id"],
                "device": facts["device"],
                "rates": rates,
                "moved_bytes_per_s": operation_rates(device).peak_bytes_per_s,
            }
        )
        # NVML counts the energy of the whole GPU, never of a slice.
        if not SLICE.search(facts["device"]):
            tells_energy = gpu is not None and gpu.energy_j() is not None
    return {
        **{name: facts[name] for name in ("node", "device", "threads")},
        "is_gpu": is_gpu,
        "misses_gpu": with_gpu and not is_gpu,
        "rates": rates,
        "nvml": tells_energy,
        "rapl": cpu_energy_counters() is not None,
        "clock_source": facts["machine"].get("clock_source"),
        "versions": all_versions(),
        "gpus": gpus,
    }


def compare_with_peak(measured: float, peak: float | None) -> dict[str, float | None]:
    """Compare a measured rate with the data sheet's peak, both in FLOP/s."""
    return {
        "measured_flops_per_s": measured,
        "peak_flops_per_s": peak,
        "share": measured / peak if peak else None,
    }
