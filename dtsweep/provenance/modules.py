"""Find a module's source without importing it."""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of installed packages.

What lies elsewhere and does not come with Python is the user's own.
"""


@dataclass(frozen=True, kw_only=True)
class _Module:
    """A module that can be imported."""

    name: str
    """With dots."""

    file: Path | None
    """Path as Python finds it, links not followed: some installers link to a store of theirs.

    None for a package without `__init__.py`, and for what is compiled into Python.
    """

    folders: Sequence[str] | None
    """Of a package, where its modules lie; None for other modules."""

    @property
    def title(self) -> str:
        """Its file, the same wherever the project lies: `nets/layers.py`."""
        path = self.name.replace(".", "/")
        if self.file is None:
            return path
        if self.file.stem == "__init__":
            return f"{path}/{self.file.name}"
        return path + self.file.suffix

    @property
    def package(self) -> str:
        """Package that its relative imports begin at."""
        if self.folders is not None:
            return self.name
        return self.name.rpartition(".")[0]

    @property
    def is_own(self) -> bool:
        """True if it is the user's own, next to the sweep file or anywhere else."""
        # A folder without __init__.py has nothing to say; what is in it may be the user's.
        places = self.places if self.file is None else [self.file]
        return (
            bool(places)
            and not self.is_standard
            and not any(_INSTALLED.intersection(p.parts) for p in places)
        )

    @property
    def places(self) -> list[Path]:
        """Its file, of a package its folders; none where it is compiled into Python."""
        if self.folders is not None:
            return [Path(folder) for folder in self.folders]
        if self.file is None:
            return []
        return [self.file]

    @property
    def is_standard(self) -> bool:
        """True if it comes with Python; one of the user's may have the same name."""
        if self.file is None:
            return self.folders is None
        return self.file.resolve().is_relative_to(
            _standard_folder()
        ) and not _INSTALLED.intersection(self.file.parts)


@cache
def _standard_folder() -> Path:
    return Path(sysconfig.get_path("stdlib")).resolve()


def find_module(name: str) -> _Module | None:
    """Find a module where Python would; neither it nor its packages are imported.

    Returns:
        None where there is none, or where it is an attribute of a module.
    """
    module, folders = None, None
    for end in range(1, name.count(".") + 2):
        part = ".".join(name.split(".")[:end])
        if end > 1 and folders is None:
            return None
        module = _loaded(part) or _found_in(folders, part)
        if module is None:
            return None
        folders = module.folders
    return module


def _loaded(name: str) -> _Module | None:
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    folders = getattr(module, "__path__", None)
    # A script and a sweep file are there too, but nobody imports them by these names.
    if getattr(module, "__spec__", None) is None or (file is None and folders is None):
        return None
    return _Module(
        name=name,
        file=None if file is None else Path(file).absolute(),
        folders=None if folders is None else list(folders),
    )


def _found_in(folders: Sequence[str] | None, name: str) -> _Module | None:
    # Not importlib.util.find_spec, which imports the packages that a module lies in.
    for finder in (finder for finder in sys.meta_path if hasattr(finder, "find_spec")):
        try:
            spec = finder.find_spec(name, folders)
        except KeyError:
            # A folder without __init__.py in a package: Python asks the package itself, which is
            # not imported.
            inside = [str(Path(folder, name.rpartition(".")[2])) for folder in folders or ()]
            return _Module(
                name=name, file=None, folders=[folder for folder in inside if Path(folder).is_dir()]
            )
        if spec is not None:
            inner = spec.submodule_search_locations
            file = None
            if spec.has_location and spec.origin:
                file = Path(spec.origin).absolute()
            return _Module(name=name, file=file, folders=None if inner is None else list(inner))
    return None
