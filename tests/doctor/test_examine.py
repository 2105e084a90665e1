from __future__ import annotations

import pytest

from dtsweep.doctor.examine import examine
from dtsweep.provenance.versions import all_versions


def test_a_node_that_was_promised_a_gpu_but_has_none_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    row = examine(with_gpu=True)
    assert row["misses_gpu"]
    assert not row["is_gpu"]
    assert row["rates"].keys() == {"fp32", "bf16"}
    assert row["nvml"] is None
    assert row["gpus"] == []
    assert row["versions"] == all_versions()
