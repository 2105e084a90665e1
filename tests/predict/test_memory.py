"""Need of memory, by measured peaks of other micro-batches."""

from __future__ import annotations

from dtsweep.predict.memory import need_bytes


def test_peaks_follow_the_line_through_the_nearest_two_micro_batches() -> None:
    # States hide the activations of one sample. Measured, between, beyond.
    peaks = {1: 11.0, 2: 12.0, 4: 20.0}
    assert [need_bytes(peaks, micro_batch) for micro_batch in (2, 3, 16)] == [12.0, 16.0, 68.0]
    assert need_bytes({4: 20.0}, 8) is None
    # A lower peak of more samples is noise.
    assert need_bytes({4: 20.0, 8: 19.0}, 16) == 20.0
