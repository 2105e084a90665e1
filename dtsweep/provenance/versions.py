"""Versions of what measures, and of the installed packages that a workload uses."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distributions, version
from importlib.util import find_spec


def versions() -> dict[str, str]:
    """Versions of the measuring packages, by column; a package without a version is left out."""
    found = {"python_version": platform.python_version()}
    for package in ("dtsweep", "torch", "ray"):
        try:
            found[f"{package}_version"] = version(package)
        except PackageNotFoundError:
            # Without Ray, `dtsweep.worker` still measures; an unpacked dtsweep has no metadata.
            continue
    return found


def all_versions() -> dict[str, str]:
    """As above, with packages that carry numbers between processes and into files."""
    carriers = package_versions(["numpy", "pyarrow"])
    return {**versions(), **{f"{name}_version": found for name, found in carriers.items()}}


def release(version: str) -> str:
    """A version without build label and patch level.

    Those may differ between a head and its workers.

    >>> release("2.13.0+cu126")
    '2.13'
    """
    return ".".join(version.partition("+")[0].split(".")[:2])


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Versions whose releases differ: name, theirs, ours. What they don't have is not a difference.

    >>> ours = {"torch_version": "2.13.0+cpu", "ray_version": "2.60.0"}
    >>> differences({"torch_version": "2.12.1", "ray_version": "2.60.1"}, ours)
    [('torch_version', '2.12.1', '2.13.0+cpu')]
    """
    both = [(name, there[name], ours) for name, ours in here.items() if name in there]
    return [(name, theirs, ours) for name, theirs, ours in both if release(theirs) != release(ours)]


def mismatches(there: Mapping[str, str], here: Mapping[str, str]) -> list[str]:
    """Say which packages of a node are of another release than the driver's.

    What travels there has no version.

    >>> here = {"torch_version": "2.13.0", "ray_version": "2.60.0"}
    >>> mismatches({"torch_version": "2.12.1"}, here)
    ['torch 2.12.1, but 2.13.0 where dtsweep runs; install the same on all nodes']
    >>> mismatches({}, {"torch_version": "2.13.0"})
    ['torch is not installed, but 2.13.0 where dtsweep runs; install the same on all nodes']
    """
    found = differences(there, here)
    if "torch_version" in here.keys() - there.keys():
        found.append(("torch_version", "is not installed", here["torch_version"]))
    return [
        f"{name.removesuffix('_version')} {theirs}, but {ours} where dtsweep runs; install the "
        "same on all nodes"
        for name, theirs, ours in found
    ]


def slow_import() -> str | None:
    """A package of this environment that slows every start of Ray down, and what to do.

    None without it.

    Ray imports jsonschema in each process; from 4.25 on, that imports rfc3987-syntax where it is
    installed (JupyterLab asks for it), whose grammar takes a second or more to compile.
    """
    if find_spec("rfc3987_syntax") is None:
        return None
    try:
        is_slow = [int(number) for number in release(version("jsonschema")).split(".")] >= [4, 25]
    except PackageNotFoundError:
        return None
    way = "pip install 'jsonschema<4.25', or pip uninstall rfc3987-syntax"
    if not is_slow:
        return None
    return f"rfc3987-syntax makes every start of Ray slower by a second or more here: {way}"


def package_versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of installed packages by import name; missing packages are left out.

    >>> set(package_versions(["numpy", "no_such_package"]))
    {'numpy'}
    """
    found, others = {}, []
    for name in sorted(names):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            others.append(name)
    return found | _versions_by_files(others)


def _versions_by_files(modules: Sequence[str]) -> dict[str, str]:
    """Versions of the packages that install modules of these names: `cv2` is of opencv-python.

    Asking importlib.metadata for its whole map takes half a second.
    """
    found: dict[str, list[str]] = {}
    for package in distributions() if modules else ():
        files = package.read_text("RECORD") or ""
        for name in modules:
            if re.search(rf"^{re.escape(name)}[/.]", files, re.MULTILINE):
                found.setdefault(name, []).append(f"{package.metadata['Name']} {package.version}")
    return {name: ", ".join(sorted(packages)) for name, packages in found.items()}
