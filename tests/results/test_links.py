"""The place of results, tried before it is needed."""

from __future__ import annotations

from pathlib import Path

from dtsweep.results.links import try_place


def test_a_place_is_written_to_listed_and_left_as_it_was(tmp_path: Path) -> None:
    assert try_place(tmp_path / "kept") == []
    assert [path for path in (tmp_path / "kept").rglob("*") if path.is_file()] == []


def test_a_place_that_cannot_be_written_to_is_a_problem_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (problem,) = try_place(tmp_path / "file" / "below")
    assert problem.startswith("results: can't write results in ")
