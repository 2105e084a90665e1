"""Addresses of results, and the records of runs there."""

from __future__ import annotations

import pytest

from dtsweep.errors import SweepError
from dtsweep.results.run_record import RunningTrial, RunRecord
from dtsweep.results.storage import Storage


@pytest.mark.parametrize("secret", ["hunter2", "hun%2Fter2"])
def test_an_address_is_shown_without_its_credentials(secret: str) -> None:
    place = Storage(f"s3://AKIA:{secret}@bucket/x?region=us-east-1")
    assert place.shown == "s3://bucket/x?region=us-east-1"


@pytest.mark.parametrize(
    ("place", "message"),
    [
        ("s3://AKIA:hun/ter2@bucket/x", r"'s3://bucket/x' can't be .* a slash .* is written %2F"),
        ("s3:/bucket/x", r"results 's3:/bucket/x' is not a folder; did you mean s3://bucket/x\?"),
        ("gs://", "name no bucket; give gs://bucket/folder"),
        ("s3:///x", "name no bucket; give s3://bucket/folder"),
        ("s3://bucket/x?endpoint=localhost", "option 'endpoint' .* mean 'endpoint_override'"),
        ("abfs://container/results", "valid account name; give a folder or s3://…, gs://…, abfs"),
        ("abfs://acme:hunter2@container/results", "is not taken; set AZURE_STORAGE_SAS_TOKEN"),
        ("gs://me:hunter2@bucket/results", 'do not accept username except "anonymous"'),
        ("gs://bucket/results?scheem=http", "Unexpected query parameter in GCS URI: 'scheem'"),
        ("zz://me:hunter2@bucket/results", r"zz://.*give a folder or s3://…"),
    ],
)
def test_an_address_that_can_not_be_used_is_refused_in_one_line_without_its_key(
    place: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_SAS_TOKEN", raising=False)
    with pytest.raises(SweepError, match=message) as refused:
        Storage(place)
    assert not [word for word in ("ter2", "\n") if word in str(refused.value)]


# Records of runs


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


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"running": [{}]}'])
def test_what_is_not_a_record_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        RunRecord.from_json(text)
