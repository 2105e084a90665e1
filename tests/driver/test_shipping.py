"""What travels to the nodes, and what stays."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dtsweep.driver.shipping import UPLOAD_LIMIT_BYTES, shipped_modules
from dtsweep.errors import SweepError


def test_python_files_and_packages_travel_and_data_secrets_and_history_stay(tmp_path: Path) -> None:
    for name in (
        ".env",
        ".git/config",
        "data/train.csv",
        "results/trials/part.parquet",
        "notes.txt",
        "key.pem",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    for name in ("sweep.py", "model.py", "net/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    dtsweep, *beside = shipped_modules(tmp_path)
    assert Path(dtsweep).name == "dtsweep"
    assert [Path(path).name for path in beside] == ["model.py", "net", "sweep.py"]


def test_a_linked_module_travels_under_the_name_that_it_is_imported_by(tmp_path: Path) -> None:
    (tmp_path / "nets" / "v2").mkdir(parents=True)
    (tmp_path / "nets" / "v2" / "__init__.py").touch()
    (tmp_path / "layers_v2.py").touch()
    here = tmp_path / "here"
    here.mkdir()
    (here / "net").symlink_to(tmp_path / "nets" / "v2")
    (here / "layers.py").symlink_to(tmp_path / "layers_v2.py")
    (tmp_path / "there").symlink_to(here)
    linked = [here / "net", here / "layers.py"]
    assert shipped_modules(None, linked)[1:] == [*map(str, linked)]
    # By another way to the folder too, and once.
    assert shipped_modules(tmp_path / "there", [tmp_path / "there" / "net"])[1:] == [
        *map(str, linked)
    ]


def test_only_what_travels_counts(tmp_path: Path) -> None:
    package = tmp_path / "net"
    for name in (".git/objects/pack", "checkpoints/last.pt", "weights.bin", "__init__.py"):
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).touch()
    (package / ".gitignore").write_text("checkpoints/\n")
    for name in (".git/objects/pack", "checkpoints/last.pt"):
        os.truncate(package / name, 2 * UPLOAD_LIMIT_BYTES)  # without a block on the disk
    assert shipped_modules(tmp_path)[1:] == [str(package)]
    os.truncate(package / "weights.bin", UPLOAD_LIMIT_BYTES)
    with pytest.raises(SweepError, match=r"most of it \S+/net, Ray takes 512; move data elsewhere"):
        shipped_modules(tmp_path)
