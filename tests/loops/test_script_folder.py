"""The working directory of a script: what it reads there, and that the user's files stay."""

from __future__ import annotations

import fcntl
import mmap
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from dtsweep.loops import script_folder, script_guard
from dtsweep.loops.script_folder import notes_for, own_folder

Write = Callable[[], object]

FILES = "config.yaml data/train/0.txt .git/HEAD .env out/old.pt ../data/1.txt"


def tree(folder: Path) -> dict[str, bytes]:
    """Contents of all files of a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture
def start(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    for name in FILES.split():
        file = project / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    database = sqlite3.connect(project / "out" / "old.db")
    database.execute("CREATE TABLE steps (number)")
    database.close()
    return project


def test_relative_paths_lead_to_contents_of_the_users_files_and_nothing_stays(
    start: Path, tmp_path: Path
) -> None:
    before = Path.cwd()
    users = tree(tmp_path)
    with own_folder("one", start=start, root=tmp_path / "root") as folder:
        assert Path.cwd() == folder.path
        assert folder.path.name == start.name
        for name in ("config.yaml", "data/train/0.txt", ".git/HEAD", "../data/1.txt"):
            assert Path(name).read_text() == name
        assert Path("config.yaml").stat().st_mtime_ns == (start / "config.yaml").stat().st_mtime_ns
        for name in ("log.txt", "out/new.pt", "data/train/1.txt", "checkpoints/1/model.pt"):
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).write_text("new")
    assert Path.cwd() == before
    assert folder.changes == []
    assert tree(tmp_path) == {**users, "root/lock": b""}


def _map() -> None:
    with Path("out/old.pt").open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:3] = b"new"


def _database() -> None:
    with sqlite3.connect("out/old.db") as database:
        database.execute("INSERT INTO steps VALUES (1)")
    database.close()


def _replace() -> None:
    Path("new.pt").write_text("new")
    Path("new.pt").replace("out/old.pt")


def _move() -> None:
    Path("new.pt").write_text("new")
    Path("out/old.pt").unlink()
    shutil.move("new.pt", "out/old.pt")


def _append(path: str) -> None:
    with Path(path).open("a") as file:
        file.write("new")


def _above() -> None:
    os.chdir("../data")
    Path("2.txt").write_text("new")
    _append("1.txt")


def _by_folder() -> None:
    folder = os.open("out", os.O_RDONLY)
    os.close(os.open("old.pt", os.O_WRONLY | os.O_TRUNC, dir_fd=folder))
    os.close(folder)


def _temporary_folder() -> None:
    tempfile.tempdir = None  # as a script does that sets TMPDIR
    Path("out/old.pt").write_text(tempfile.gettempdir())


def _kept_name(path: str, size: int) -> None:
    from os import truncate  # as a script does

    truncate(path, size)


def _temporary() -> None:
    with tempfile.NamedTemporaryFile(dir="out", delete=False) as file:
        file.write(b"new")
    Path(file.name).replace("out/old.pt")


WAYS: dict[str, Write] = {
    "open": lambda: Path("out/old.pt").write_text("new"),
    "append": lambda: _append("out/old.pt"),
    "descriptor": lambda: os.write(os.open("out/old.pt", os.O_RDWR), b"new"),
    "emptied": lambda: os.close(os.open("out/old.pt", os.O_WRONLY | os.O_TRUNC)),
    "replace": _replace,
    "move": _move,
    "mmap": _map,
    "torch": lambda: torch.save(torch.ones(2), "out/old.pt"),
    "database": _database,
    "array": lambda: np.memmap("out/old.pt", mode="r+", shape=3).fill(1),
    "truncate": lambda: os.truncate("out/old.pt", 1),
    "times": lambda: os.utime("out/old.pt", (1, 1)),
    "permissions": lambda: Path("out/old.pt").chmod(0o700),
    "removal": lambda: shutil.rmtree("out"),
    "folder": _by_folder,
    "temporary folder": _temporary_folder,
    "event of a library": lambda: sys.audit("open", "out/old.pt", "w"),
    "script module": lambda: torch.jit.save(torch.jit.script(torch.nn.ReLU()), "out/old.pt"),
    "own script module": lambda: torch.jit.script(torch.nn.ReLU()).save("out/old.pt"),
    "keywords": lambda: os.replace(src="config.yaml", dst="out/old.pt"),  # noqa: PTH105  # by keywords
    "kept name": lambda: _kept_name("out/old.pt", 1),
    "database module": lambda: sqlite3.dbapi2.connect("out/old.db").execute("DROP TABLE steps"),
    "temporary": _temporary,
    "hidden": lambda: Path(".git/index").write_text("new"),
    "hidden file": lambda: Path(".env").write_text("new"),
    "above": _above,
}
"""Ways in which Python changes a file of the user's that a script finds by a relative path."""


@pytest.mark.parametrize("most_bytes", [2**20, 0], ids=["copies", "links"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_nothing_of_the_users_changes(
    way: str, most_bytes: int, start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_folder, "MOST_BYTES", most_bytes)
    users = tree(tmp_path)
    states = {path: path.stat() for path in tmp_path.rglob("*")}
    with own_folder("one", start=start, root=tmp_path / "root") as folder:
        before = tree(folder.path)
        WAYS[way]()
        changed = before != tree(folder.path)
    assert folder.changes == []
    assert (
        changed
        or way in ("times", "permissions", "above", "event of a library")
        or way.startswith("hidden")
    )
    assert tree(tmp_path) == {**users, "root/lock": b""}
    for path, state in states.items():
        now = path.stat()
        assert (now.st_ino, now.st_mode) == (state.st_ino, state.st_mode), path
        if path != tmp_path:
            assert now.st_mtime_ns == state.st_mtime_ns, path


def test_files_elsewhere_that_the_script_changes_are_reported(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(start / "temporary"))
    other = tmp_path / "other.log"
    other.write_text("old")
    users = tree(start)
    root = tmp_path / "root"
    with own_folder("one", start=start, root=root, arguments=[f"--log={other}"]) as folder:
        subprocess.run(["sh", "-c", "echo new >> out/old.pt"], check=True)
        # As a shell that has the script's output go to a file of the project.
        subprocess.run(
            ["sh", "-c", f"echo new >> {start}/run.log; echo new >> {other}"], check=True
        )
        (start / "config.yaml").write_text("new")
        (start / "temporary").mkdir()
        (start / "temporary" / "own.txt").write_text("new")
        Path("../data/1.txt").write_text("new")
    assert folder.changes == [str(other), str(start / "config.yaml")]
    (note,) = notes_for(start, [f"--log={other}"])
    assert note.startswith(f"arguments name absolute paths: {other}; ")
    new = {"run.log": b"new\n", "temporary/own.txt": b"new", "config.yaml": b"new"}
    assert tree(start) == {**users, **new}
    assert (tmp_path / "data" / "1.txt").read_text() == "../data/1.txt"


def test_a_large_linked_folder_can_be_worked_in(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_guard, "_MOST_LINKS", 0)
    with own_folder("one", start=start, root=tmp_path / "root"):
        os.chdir("../data")
        assert Path("1.txt").read_text() == "../data/1.txt"


def test_a_folder_of_many_files_is_a_link_until_a_file_is_made_in_it(
    start: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_folder, "_MOST_ENTRIES", 30)
    for number in range(31):
        (start / "data" / str(number)).touch()
    users = tree(start)
    with own_folder("one", start=start, root=tmp_path / "root"):
        assert Path("data").is_symlink()
        assert not Path("out").is_symlink()
        Path("data/train/new.txt").write_text("new")
        assert not Path("data").is_symlink()
        (note,) = notes_for(start, [])
        assert note.startswith("too large to be copied for each trial: data; ")
        assert Path("data/train/0.txt").read_text() == "data/train/0.txt"
    assert tree(start) == users


def test_functions_of_torch_are_given_back(start: Path, tmp_path: Path) -> None:
    functions = (os.open, torch.save, torch.jit.save)
    with own_folder("one", start=start, root=tmp_path / "root"):
        assert torch.save is not functions[1]
        with own_folder("two", start=start, root=tmp_path / "root"):
            Path("out/old.pt").write_text("new")
    assert (os.open, torch.save, torch.jit.save) == functions


def test_a_linked_pipe_stays_the_users(start: Path, tmp_path: Path) -> None:
    os.mkfifo(start / "pipe")
    with own_folder("one", start=start, root=tmp_path / "root"), Path("pipe").open("r+b", 0) as own:
        own.write(b"new")
        with (start / "pipe").open("rb", 0) as users:
            assert users.read(3) == b"new"
    assert (start / "pipe").is_fifo()


def test_neither_special_files_nor_other_file_systems_are_copied(
    start: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(start / "pipe")
    monkeypatch.setattr(os.path, "ismount", lambda path: Path(path).name == "out")
    found = script_folder.folder_layout(start)
    assert {start / "pipe", start / "out"} <= {*found.linked}
    assert start / "data" in found.folders


def test_a_link_between_files_leads_to_the_copy(start: Path, tmp_path: Path) -> None:
    (start / "latest").symlink_to("out/old.pt")
    (start / "far").symlink_to(tmp_path / "data")
    users = tree(tmp_path)
    with own_folder("one", start=start, root=tmp_path / "root"):
        Path("latest").write_text("new")
        assert Path("out/old.pt").read_text() == "new"
        Path("far/1.txt").write_text("new")
    assert tree(tmp_path) == {**users, "root/lock": b""}


def test_a_script_of_another_folder_is_copied_with_it(start: Path, tmp_path: Path) -> None:
    script = tmp_path / "scripts" / "train.py"
    script.parent.mkdir()
    script.write_text("")
    with own_folder("one", start=start, script=script, root=tmp_path / "root") as folder:
        copy = folder.copy_of(script)
        assert copy.is_relative_to(tmp_path / "root")
        (copy.parent / "new.txt").write_text("new")
        assert folder.copy_of(start / "train.py") == folder.path / "train.py"
    assert tree(script.parent) == {"train.py": b""}


def test_a_node_without_the_users_folder_has_an_empty_one(tmp_path: Path) -> None:
    with own_folder("one", start=tmp_path / "far" / "away", root=tmp_path / "root") as folder:
        assert not list(folder.path.iterdir())


def test_the_ranks_of_a_node_share_it_and_the_last_one_removes_it(
    start: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    with own_folder("one", start=start, root=root) as first:
        with own_folder("one", start=start, root=root) as second:
            Path("shared.txt").touch()
            assert first.path == second.path
        assert (first.path / "shared.txt").exists()
        with own_folder("two", start=start, root=root) as other:
            assert not (other.path / "shared.txt").exists()
    assert not first.path.exists()


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
