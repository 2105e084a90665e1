"""Versions of what measures, and of packages that a workload imports."""

from __future__ import annotations

from pathlib import Path

import pytest

from dtsweep.provenance.versions import package_versions, versions


def test_versions_name_python_and_what_is_installed() -> None:
    assert set(versions()) == {"python_version", "dtsweep_version", "torch_version", "ray_version"}


def test_a_package_is_known_by_what_it_is_imported_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    modules = {
        "opencv_python": "cv2/__init__.py",
        "six_like": "six_like.py",
        "other": "cv2_like.py",
    }
    for name, module in modules.items():
        folder, project = tmp_path / f"{name}-1.5.dist-info", name.replace("_", "-")
        folder.mkdir()
        metadata = f"Metadata-Version: 2.1\nName: {project}\nVersion: 1.5\n"
        (folder / "METADATA").write_text(metadata)
        (folder / "RECORD").write_text(f"{folder.name}/METADATA,,\n{module},sha256=x,1\n")
    monkeypatch.syspath_prepend(tmp_path)
    found = package_versions(["cv2", "six_like", "missing"])
    assert found == {"cv2": "opencv-python 1.5", "six_like": "1.5"}
