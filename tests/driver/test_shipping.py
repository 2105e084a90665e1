"""What travels to the nodes, and what stays."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from dtsweep.driver.shipping import LEFT_OUT, shipped_modules


def test_python_files_and_packages_travel_and_data_secrets_and_history_stay(tmp_path: Path) -> None:
    for name in (".env", ".git/config", "data/train.csv", "results/trials/part.parquet", "notes.txt", "key.pem"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    for name in ("sweep.py", "model.py", "net/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    dtsweep, *beside = shipped_modules(tmp_path)
    assert Path(dtsweep).name == "dtsweep"
    assert [Path(path).name for path in beside] == ["model.py", "net", "sweep.py"]


def test_the_secrets_inside_a_package_stay(tmp_path: Path) -> None:
    packaging = pytest.importorskip("ray._private.runtime_env.packaging")
    package = tmp_path / "net"
    for name in ("__init__.py", "layers.py", ".env", ".env.local", "sub/.env", "vocabulary.txt"):
        (package / name).parent.mkdir(exist_ok=True, parents=True)
        (package / name).write_text("x")
    packaging._zip_files(
        package,
        excludes=[*LEFT_OUT],
        output_path=str(tmp_path / "net.zip"),
        include_gitignore=True,
        include_parent_dir=True,
    )
    with zipfile.ZipFile(tmp_path / "net.zip") as archive:
        assert sorted(name for name in archive.namelist() if not name.endswith("/")) == [
            *("net/__init__.py", "net/layers.py", "net/vocabulary.txt")
        ]
