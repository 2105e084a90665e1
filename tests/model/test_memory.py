"""Need of memory, by measured peaks of other micro-batches."""

from __future__ import annotations

import pytest

from dtsweep.model.memory import need_bytes


@pytest.mark.parametrize(
    ("micro_batch", "need"),
    [
        pytest.param(2, 12.0, id="measured"),
        pytest.param(3, 16.0, id="between"),
        pytest.param(16, 68.0, id="beyond"),
    ],
)
def test_peaks_follow_the_line_through_the_nearest_two_micro_batches(
    micro_batch: int, need: float
) -> None:
    # States hide the activations of one sample.
    assert need_bytes({1: 11.0, 2: 12.0, 4: 20.0}, micro_batch) == need


def test_one_micro_batch_says_nothing_of_others_and_a_lower_peak_of_more_samples_is_noise() -> None:
    assert need_bytes({4: 20.0}, 8) is None
    assert need_bytes({}, 8) is None
    assert need_bytes({4: 20.0, 8: 19.0}, 16) == 20.0
