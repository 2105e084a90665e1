"""Tables of a node's GPUs."""

from __future__ import annotations

from dtsweep.doctor.gpu_tables import gpu_rate_columns
from tests.doctor.nodes import gpu_row


def test_a_gpu_that_lacks_a_precision_has_an_empty_cell() -> None:
    rate = gpu_row()["rates"]["fp32"]
    usual = {"gpu": 0, "device": "A", "moved_bytes_per_s": 1e12, "pcie_lanes": [16, 16]}
    old = {**usual, "rates": {"fp32": rate}}
    new = {**usual, "gpu": 1, "rates": {"fp32": rate, "tf32": rate}}
    columns = gpu_rate_columns([old, new])
    assert columns["tf32\nTFLOP/s"] == ["", columns["fp32\nTFLOP/s"][1]]
