"""The place of results, tried before it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dtsweep.errors import StorageError, SweepError
from dtsweep.results.links import SCHEMA, _parquet, read_links, store_links, try_place
from dtsweep.results.storage import Storage


def test_a_place_is_written_to_listed_and_left_as_it_was(tmp_path: Path) -> None:
    assert try_place(tmp_path / "kept") == []
    assert [path for path in (tmp_path / "kept").rglob("*") if path.is_file()] == []


def test_a_place_that_cannot_be_written_to_is_a_problem_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (problem,) = try_place(tmp_path / "file" / "below")
    assert problem.startswith("results: can't write results in ")


def test_what_is_written_to_try_a_place_is_a_table_without_rows() -> None:
    assert pq.read_table(pa.BufferReader(_parquet([]))).equals(SCHEMA.empty_table())


@pytest.mark.parametrize("secret", ["hunter2", "hun%2Fter2"])
def test_an_address_is_shown_without_its_credentials(secret: str) -> None:
    assert (
        Storage(f"s3://AKIA:{secret}@bucket/x?region=us-east-1").shown
        == "s3://bucket/x?region=us-east-1"
    )


def test_a_slash_in_a_secret_key_is_refused_with_the_way_to_write_it() -> None:
    with pytest.raises(
        SweepError, match=r"results 's3://bucket/x' can't be opened: a slash .* is written %2F"
    ):
        try_place("s3://AKIA:hun/ter2@bucket/x")


def test_an_address_that_lacks_a_slash_is_no_folder() -> None:
    with pytest.raises(
        SweepError, match=r"results 's3:/bucket/x' is not a folder; did you mean s3://bucket/x\?"
    ):
        try_place("s3:/bucket/x")


@pytest.mark.parametrize("place", ["gs://", "s3:///x"])
def test_an_address_without_a_bucket_is_refused(place: str) -> None:
    with pytest.raises(SweepError, match=r"name no bucket; give (gs|s3)://bucket/folder"):
        try_place(place)


def link(nodes: str, *, ranks: int = 2, latency_s: float = 1e-4) -> dict[str, Any]:
    """A link with two sizes, as doctor stores it."""
    sizes = [{"size_bytes": size, "time_s": 1e-3, "times": 5} for size in (8, 1024)]
    return {
        "is_within": "," not in nodes,
        "nodes": nodes,
        "device": "H100",
        "backend": "nccl",
        "ranks": ranks,
        "latency_s": latency_s,
        "bandwidth_bytes_per_s": 1e10,
        "all_reduces": sizes,
    }


def test_the_newest_measurement_of_each_group_is_read(tmp_path: Path) -> None:
    store_links(tmp_path, [link("a"), link("a, b", ranks=16)])
    store_links(tmp_path, [link("a", latency_s=2e-4)])
    links = sorted(read_links(tmp_path), key=lambda one: one.nodes)
    assert [(one.nodes, one.ranks, one.latency_s) for one in links] == [(1, 2, 2e-4), (2, 16, 1e-4)]
    assert {(one.device, one.backend, one.bandwidth_bytes_per_s) for one in links} == {
        ("H100", "nccl", 1e10)
    }


def test_results_without_links_have_none(tmp_path: Path) -> None:
    assert read_links(tmp_path) == ()


def test_a_damaged_file_of_links_is_named(tmp_path: Path) -> None:
    name = store_links(tmp_path, [link("a")])
    (tmp_path / "links" / name).write_bytes(b"PAR1")
    with pytest.raises(StorageError, match=rf"links/{name} is damaged: .*; delete it"):
        read_links(tmp_path)
