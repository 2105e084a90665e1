"""The working directory of a script: what it reads there, and that nothing stays."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from dtsweep.worker.script_folder import MOST_FILES, own_folder


@pytest.fixture
def start(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for name in ("config.yaml", "data/train/0.txt", ".git/HEAD", "out/old.pt", "../data/1.txt"):
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return project


def test_relative_paths_lead_to_the_users_files_and_new_ones_do_not_stay(
    start: Path, tmp_path: Path
) -> None:
    before = Path.cwd()
    with own_folder("one", start=start, root=tmp_path / "root") as folder:
        assert Path.cwd() == folder
        assert folder.name == start.name
        for name in ("config.yaml", "data/train/0.txt", ".git/HEAD", "../data/1.txt"):
            assert Path(name).read_text() == name
        for name in ("log.txt", "out/new.pt", "data/train/1.txt", "checkpoints/1/model.pt"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text("new")
    assert Path.cwd() == before
    files = {str(path.relative_to(start)) for path in start.rglob("*") if path.is_file()}
    assert files == {"config.yaml", "data/train/0.txt", ".git/HEAD", "out/old.pt"}
    assert [path.name for path in (tmp_path / "root").iterdir()] == ["lock"]


def test_a_folder_of_many_files_is_linked_as_a_whole(start: Path, tmp_path: Path) -> None:
    for number in range(MOST_FILES + 1):
        (start / "data" / str(number)).touch()
    with own_folder("one", start=start, root=tmp_path / "root"):
        assert Path("data").is_symlink()
        assert not Path("out").is_symlink()


def test_a_node_without_the_users_folder_has_an_empty_one(tmp_path: Path) -> None:
    with own_folder("one", start=tmp_path / "far" / "away", root=tmp_path / "root") as folder:
        assert not list(folder.iterdir())


def test_the_ranks_of_a_node_share_it_and_the_last_one_removes_it(
    start: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    with own_folder("one", start=start, root=root) as first:
        with own_folder("one", start=start, root=root) as second:
            Path("shared.txt").touch()
            assert first == second
        assert (first / "shared.txt").exists()
        with own_folder("two", start=start, root=root) as other:
            assert not (other / "shared.txt").exists()
    assert not first.exists()


def test_what_a_killed_process_leaves_is_removed_by_the_next_one(
    start: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    for name in ("killed", "alive"):
        (root / name).mkdir(parents=True)
    held = os.open(root / "alive", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_SH)
    with own_folder("one", start=start, root=root):
        assert sorted(path.name for path in root.iterdir()) == ["alive", "lock", "one"]
    os.close(held)
