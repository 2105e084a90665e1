"""Packages as `pip install` leaves them in a folder, made without a network or a build backend."""

from __future__ import annotations

import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

from tests.pages import ROOT

PACKAGE = ROOT / "tests" / "package"
"""A package that declares a mode, a compression and a workload."""


def install(folder: Path, *, version: str | None = None) -> Path:
    """Install the package of `tests/package` into a folder, with its own version or another."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))["project"]
    for name in ("dtsweep_delayed",):
        shutil.copytree(PACKAGE / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    describe(
        folder,
        project["name"],
        version=version or project["version"],
        entry_points=project["entry-points"],
    )
    return folder


def describe(
    folder: Path, name: str, *, version: str, entry_points: Mapping[str, Mapping[str, str]]
) -> None:
    """Write the metadata of an installed package, with its entry points by group."""
    metadata = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    lines = []
    for group, entries in entry_points.items():
        lines += [f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())]
    (metadata / "entry_points.txt").write_text("\n".join(lines) + "\n", "utf-8")
