"""Versions of what measures, and of packages that a workload imports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtsweep.provenance.versions import package_versions, versions
from tests.pages import ROOT


def test_versions_name_python_and_what_is_installed() -> None:
    assert set(versions()) == {"python_version", "dtsweep_version", "torch_version", "ray_version"}


def test_a_package_is_known_by_what_it_is_imported_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, module in (
        ("opencv_python", "cv2/__init__.py"),
        ("six_like", "six_like.py"),
        ("other", "cv2_like.py"),
    ):
        folder = tmp_path / f"{name}-1.5.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: 1.5\n"
        )
        (folder / "RECORD").write_text(f"{folder.name}/METADATA,,\n{module},sha256=x,1\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert package_versions(["cv2", "six_like", "missing"]) == {
        "cv2": "opencv-python 1.5",
        "six_like": "1.5",
    }


def slow_import_with(folder: Path, **packages: str) -> str:
    """What a Python says that has nothing installed but stand-ins for these packages.

    None imports a package.
    """
    for name, release in packages.items():
        (folder / f"{name}.py").write_text("raise ImportError('it is looked up, not imported')")
        (folder / f"{name}-{release}.dist-info").mkdir()
        (folder / f"{name}-{release}.dist-info" / "METADATA").write_text(
            f"Name: {name}\nVersion: {release}\n"
        )
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            "from dtsweep.provenance.versions import slow_import; print(slow_import())",
        ],
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("jsonschema", ["4.25.0", "4.26.0", "5.0"])
def test_an_environment_where_ray_starts_slowly_says_what_to_do(
    tmp_path: Path, jsonschema: str
) -> None:
    said = slow_import_with(tmp_path, rfc3987_syntax="1.1.0", jsonschema=jsonschema)
    assert said.startswith("rfc3987-syntax makes every start of Ray slower")
    assert "pip install 'jsonschema<4.25'" in said


@pytest.mark.parametrize(
    "packages",
    [
        {"rfc3987_syntax": "1.1.0", "jsonschema": "4.24.1"},
        {"rfc3987_syntax": "1.1.0"},
        {"jsonschema": "4.26.0"},
        {},
    ],
    ids=str,
)
def test_an_environment_without_both_packages_starts_fast(
    tmp_path: Path, packages: dict[str, str]
) -> None:
    assert slow_import_with(tmp_path, **packages) == "None"
