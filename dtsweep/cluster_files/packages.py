"""Packages of the nodes, in the versions that are installed where the file is written."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import (
    PackageNotFoundError,
    packages_distributions,
    requires,
    version,
)
from pathlib import Path

from dtsweep import errors
from dtsweep.errors import SweepError
from dtsweep.provenance.versions import versions

RAY_EXTRAS = "default,train,tune"
"""Of Ray on the nodes: `default` has the dashboard, which takes jobs."""

ALREADY_THERE = frozenset({"dtsweep", "ray", "torch"})


@dataclass(frozen=True, kw_only=True)
class Packages:
    """Packages of the nodes."""

    python: str
    """Version of Python, such as `3.11`."""

    ray: str
    dtsweep: str

    pins: tuple[str, ...]
    """`NAME==VERSION` of each package that dtsweep and the workload need."""

    source: Path | None
    """Folder that dtsweep can be installed from; None if it was installed as a package."""

    @property
    def base_image(self) -> str:
        """Ray's own image of these versions, without platform.

        >>> Packages(python="3.11", ray="2.60.0", dtsweep="1", pins=(), source=None).base_image
        'rayproject/ray:2.60.0-py311'
        """
        return f"rayproject/ray:{self.ray}-py{self.python.replace('.', '')}"


def installed_packages(imported: Iterable[str]) -> Packages:
    """Packages that are installed here.

    Args:
        imported: names by which the workload imports packages.

    Raises:
        SweepError: dtsweep, Ray or torch is not installed here.
    """
    known = versions()
    for name in ("dtsweep", "ray", "torch"):
        if f"{name}_version" not in known:
            raise SweepError(
                f"the version of {name} is unknown: it is not installed here; write the file "
                "where it is, by pip install"
            )
    names = {*_required_by_dtsweep(), *_distributions_of(imported)}
    pins = [_pin(name) for name in sorted(names - ALREADY_THERE, key=str.lower)]
    return Packages(
        python=".".join(known["python_version"].split(".")[:2]),
        ray=known["ray_version"],
        dtsweep=known["dtsweep_version"],
        pins=(
            f"ray[{RAY_EXTRAS}]=={known['ray_version']}",
            # Without `+cpu` or `+cu126`: which build fits depends on the node.
            f"torch=={known['torch_version'].partition('+')[0]}",
            *pins,
        ),
        source=_source_folder(),
    )


def _required_by_dtsweep() -> list[str]:
    """Names of the packages that dtsweep needs, without those of its extras."""
    needed = [line for line in requires("dtsweep") or () if "extra ==" not in line]
    return [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in needed]


def _distributions_of(imported: Iterable[str]) -> set[str]:
    """Names by which packages are installed, such as `opencv-python` of `cv2`."""
    tops = {name.partition(".")[0] for name in imported}
    if not tops - ALREADY_THERE:
        return set()
    by_module = packages_distributions()
    return {name for top in tops for name in by_module.get(top, ())}


def _pin(name: str) -> str:
    try:
        return f"{name}=={version(name).partition('+')[0]}"
    except PackageNotFoundError:
        raise SweepError(
            f"{name} is not installed here, and dtsweep needs it; pip install it first"
        ) from None


def _source_folder() -> Path | None:
    folder = Path(errors.__file__).resolve().parents[1]
    if (folder / "pyproject.toml").is_file():
        return folder
    return None
