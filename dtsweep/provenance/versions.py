"""Versions of what measures, and of the installed packages that a workload uses."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions, version


def versions() -> dict[str, str]:
    """Versions of the measuring packages, by column; a package without a version is left out."""
    by_column = {"python_version": platform.python_version()}
    for package in ("dtsweep", "torch", "ray"):
        try:
            by_column[f"{package}_version"] = version(package)
        except PackageNotFoundError:
            # Without Ray, `dtsweep.worker` still measures; an unpacked dtsweep has no metadata.
            continue
    return by_column


def all_versions() -> dict[str, str]:
    """Versions of the measuring packages, and of those that carry numbers between processes."""
    carriers = package_versions(["numpy", "pyarrow"])
    return versions() | {f"{name}_version": number for name, number in carriers.items()}


def _release(version: str) -> str:
    """A version without build label and patch level.

    Those may differ between a head and its workers.

    >>> _release("2.13.0+cu126")
    '2.13'
    """
    return ".".join(version.partition("+")[0].split(".")[:2])


def differences(
    node_versions: Mapping[str, str], driver_versions: Mapping[str, str]
) -> list[tuple[str, str, str]]:
    """Versions whose releases differ: name, the node's, the driver's.

    What the node does not have is not a difference.

    >>> ours = {"torch_version": "2.13.0+cpu", "ray_version": "2.60.0"}
    >>> differences({"torch_version": "2.12.1", "ray_version": "2.60.1"}, ours)
    [('torch_version', '2.12.1', '2.13.0+cpu')]
    """
    return [
        (name, node_versions[name], ours)
        for name, ours in driver_versions.items()
        if name in node_versions and _release(node_versions[name]) != _release(ours)
    ]


def mismatches(node_versions: Mapping[str, str], driver_versions: Mapping[str, str]) -> list[str]:
    """List the packages of a node that are of another release than the driver's.

    A package without a version, such as one that Ray has sent to the node, is left out.

    >>> driver_versions = {"torch_version": "2.13.0", "ray_version": "2.60.0"}
    >>> mismatches({"torch_version": "2.12.1"}, driver_versions)
    ['torch 2.12.1, but 2.13.0 where dtsweep runs; install the same on all nodes']
    >>> mismatches({}, {"torch_version": "2.13.0"})
    ['torch is not installed, but 2.13.0 where dtsweep runs; install the same on all nodes']
    """
    differing = differences(node_versions, driver_versions)
    if "torch_version" in driver_versions.keys() - node_versions.keys():
        differing.append(("torch_version", "is not installed", driver_versions["torch_version"]))
    return [
        f"{name.removesuffix('_version')} {theirs}, but {ours} where dtsweep runs; install the "
        "same on all nodes"
        for name, theirs, ours in differing
    ]


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of installed packages by import name; missing packages are left out.

    >>> set(package_versions(["numpy", "no_such_package"]))
    {'numpy'}
    """
    by_name, unresolved = {}, []
    for name in sorted(names):
        try:
            by_name[name] = version(name)
        except PackageNotFoundError:
            unresolved.append(name)
    return by_name | _versions_by_files(unresolved)


def _versions_by_files(modules: Sequence[str]) -> dict[str, str]:
    """Versions of the packages that install modules of these names: `cv2` is of opencv-python.

    Asking importlib.metadata for its whole map takes half a second.
    """
    installers: dict[str, list[str]] = {}
    for package in distributions() if modules else ():
        files = package.read_text("RECORD") or ""
        for name in modules:
            if re.search(rf"^{re.escape(name)}[/.]", files, re.MULTILINE):
                named = f"{package.metadata['Name']} {package.version}"
                installers.setdefault(name, []).append(named)
    return {name: ", ".join(sorted(packages)) for name, packages in installers.items()}
