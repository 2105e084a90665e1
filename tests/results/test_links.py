"""The place of results, tried before it is needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dtsweep.errors import SweepError
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


def test_nodes_with_new_names_replace_the_older_ones(tmp_path: Path) -> None:
    store_links(tmp_path, [link("pod-1", latency_s=5e-3), link("pod-2", latency_s=5e-3)])
    store_links(tmp_path, [link("pod-3"), link("pod-4", latency_s=2e-4)])
    assert sorted(one.latency_s or 0 for one in read_links(tmp_path)) == [1e-4, 2e-4]


def test_what_a_fit_can_not_tell_is_unknown(tmp_path: Path) -> None:
    store_links(tmp_path, [link("a", latency_s=0.0) | {"bandwidth_bytes_per_s": None}])
    (one,) = read_links(tmp_path)
    assert one.latency_s is None
    assert one.bandwidth_bytes_per_s is None


@pytest.mark.parametrize(
    "change",
    [{"ranks": 1}, {"ranks": None}, {"device": None}, {"is_within": False, "nodes": "a"}],
    ids=str,
)
def test_a_row_that_does_not_name_its_group_is_no_link(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    store_links(tmp_path, [link("a") | change])
    assert read_links(tmp_path) == ()


@pytest.mark.parametrize("place", [None, 4, 60, -300], ids=str)
def test_a_damaged_file_of_links_is_left_out(tmp_path: Path, place: int | None) -> None:
    store_links(tmp_path, [link("a, b")])
    name = store_links(tmp_path, [link("c")])
    path = tmp_path / "links" / name
    data = bytearray(path.read_bytes())
    if place is None:
        data = data[:4]
    else:
        data[place] ^= 0xFF
    path.write_bytes(data)
    with pytest.warns(UserWarning, match=rf"links/{name} is left out: "):
        (one,) = read_links(tmp_path)
    assert one.nodes == 2


def test_a_file_of_something_else_is_left_out(tmp_path: Path) -> None:
    store_links(tmp_path, [link("a")])
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "links" / "other.parquet")
    with pytest.warns(UserWarning, match="other.parquet is left out"):
        assert len(read_links(tmp_path)) == 1
