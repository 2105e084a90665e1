"""Need of memory of points, from frames of made-up trials."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep import workloads
from dtsweep.analysis.memory import MemoryModel, memory_model
from dtsweep.sweep.point import Point
from dtsweep.sweep.values import stored_fields
from tests.frames import trials

GIB = 2.0**30
GPT = workloads.Gpt()
ON_GPU = {"backend": "nccl", "device_free_bytes": 78 * 2**30}


def peak_bytes(sync: str, workers: int, micro_batch: int) -> int:
    """Peak with 0.5 GiB of parameters in 5 blocks on a GPU, AdamW, and 1 GiB a sample."""
    size = 0.5 * GIB
    most = {
        "ddp": max(6 * size, 4 * size + micro_batch * GIB),
        "fsdp": max(
            4 * size / workers + (3 - 2 / workers) * size / 5,
            3 * size / workers + 2 * size / 5 + micro_batch * GIB,
        ),
    }
    return int(0.1 * GIB + most[sync])


def measured(
    sync: str, workers: int, micro_batches: tuple[int, ...], **more: Any
) -> list[dict[str, Any]]:
    return [
        {
            **{"sync": sync, "workers": workers, "micro_batch": size, "parameters": 2**27},
            **{"memory_peak_bytes": peak_bytes(sync, workers, size), **more},
        }
        for size in micro_batches
    ]


def model_of(*rows: dict[str, Any]) -> MemoryModel:
    frame = trials(*rows, optimizer="adamw", **ON_GPU, **stored_fields(GPT))
    model = memory_model(frame)
    assert model is not None
    return model


def points(sync: str, workers: int, *micro_batches: int, **more: Any) -> list[Point]:
    return [
        Point(
            workload=GPT,
            sync=sync,
            workers=workers,
            micro_batch=size,
            **{"optimizer": "adamw", **more},
        )
        for size in micro_batches
    ]


MEASURED = [
    *measured("ddp", 2, (1, 2, 8)),
    *measured("fsdp", 2, (1, 8), blocks="5 Block"),
]


@pytest.fixture(scope="module")
def model() -> MemoryModel:
    return model_of(*MEASURED)


def test_peaks_of_other_micro_batches_and_worker_numbers_lie_within_their_intervals(
    model: MemoryModel,
) -> None:
    for sync, workers in (("ddp", 4), ("fsdp", 2), ("fsdp", 4)):
        need = model.predict(points(sync, workers, 1, 4, 16, 64))
        truth = np.array([peak_bytes(sync, workers, size) for size in (1, 4, 16, 64)])
        assert need.expected == pytest.approx(truth, rel=0.06)
        assert ((need.low < truth) & (truth < need.high)).all()


def test_a_mode_that_was_not_measured_needs_what_its_states_say(model: MemoryModel) -> None:
    (ddp, zero1) = (model.predict(points(mode, 4, 1)).expected[0] for mode in ("ddp", "zero1"))
    # Three quarters of the two averages of 0.5 GiB.
    assert ddp - zero1 == pytest.approx(3 / 4 * 2 * 0.5 * GIB, rel=0.2)


def test_the_need_grows_with_the_micro_batch_and_shrinks_with_the_probability_to_fit(
    model: MemoryModel,
) -> None:
    sizes = points("ddp", 2, 1, 2, 4, 8, 16, 32, 64, 128)
    assert (np.diff(model.predict(sizes).expected) > -0.05 * GIB).all()
    fits = model.probability_to_fit(points("ddp", 2, 32, 64, 75, 78, 128))
    assert (np.diff(fits) <= 0).all()
    assert (fits[0], fits[-1]) == (pytest.approx(1), pytest.approx(0))
    assert 0.05 < fits[2] < 0.999


def test_a_trial_that_ran_out_of_memory_raises_the_need() -> None:
    # The states hide the activations of one sample.
    few = measured("ddp", 2, (1,))
    full = {**measured("ddp", 2, (64,))[0], "status": "oom_device", "memory_peak_bytes": None}
    before = model_of(*few).predict(points("ddp", 2, 64, 96)).low
    after = model_of(*few, full).predict(points("ddp", 2, 64, 96)).low
    assert (before < 50 * GIB).all()
    # Nine tenths of 78 GiB were in use, less the noise.
    assert (after > 65 * GIB).all()


def test_one_micro_batch_tells_nothing_of_activations_and_another_workload_has_no_need() -> None:
    one = model_of(*measured("ddp", 2, (4,)), *measured("fsdp", 2, (4,)), *measured("ddp", 4, (4,)))
    assert one.has_evidence(points("ddp", 2, 64)).tolist() == [False]
    two = model_of(*MEASURED)
    assert two.has_evidence(points("ddp", 2, 64)).tolist() == [True]
    assert two.has_evidence(points("ddp", 2, 64, precision="bf16")).tolist() == [False]
    elsewhere = Point(workload=workloads.Gpt(layers=9), workers=2)
    assert np.isnan(two.predict([elsewhere]).expected).all()
    assert memory_model(pd.DataFrame(trials({"status": "user_error"}))) is None


def test_the_memory_of_another_class_is_unknown() -> None:
    rows = trials(*measured("ddp", 2, (1, 8)), workload="Other", **ON_GPU, **stored_fields(GPT))
    model = memory_model(rows)
    assert model is not None
    (point,) = points("ddp", 2, 4)
    assert np.isnan(model.predict([point]).expected).all()
    assert not model.has_evidence([point]).any()


def test_rows_of_tables_may_lack_the_settings_of_a_step() -> None:
    (complete, *others) = measured("ddp", 2, (1, 4, 8))
    others[0]["accumulation"] = None
    others[1]["micro_batch"] = None
    model = model_of(complete, *others)
    assert [*model.micro_batches.values()] == [{1, 4}]
