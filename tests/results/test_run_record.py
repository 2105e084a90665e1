from __future__ import annotations

import pytest

from dtsweep.results.run_record import RunningTrial, RunRecord


def test_a_record_comes_back_as_it_was_written() -> None:
    record = RunRecord(
        run_id="a",
        sweep="batchsize",
        host="head",
        pid=7,
        started_at=10.0,
        updated_at=20.0,
        statuses={"ok": 3},
        running=(RunningTrial(trial_id="b", name="workers=2", since=15.0),),
        node_s={"gpu": 3.0},
    )
    assert RunRecord.from_json(record.to_json()) == record


@pytest.mark.parametrize("text", [b"{", b"[]", b"{}", b'{"running": [{}]}', b"null"])
def test_what_is_not_a_record_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        RunRecord.from_json(text)
