"""Source, packages and data that a workload's numbers depend on, apart from its fields."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from importlib import invalidate_caches
from importlib.util import decode_source
from pathlib import Path
from typing import Any

from dtsweep.provenance.data import content_digest
from dtsweep.provenance.modules import find_module
from dtsweep.provenance.syntax import imported, parse_counted
from dtsweep.provenance.typed import typed
from dtsweep.provenance.versions import package_versions
from dtsweep.text import listed

_COMPARED_ELSEWHERE = frozenset({"dtsweep", "torch", "ray", "__main__"})
"""Packages whose versions are columns of their own, and what is not a package."""

_OURS = "dtsweep.workloads."

_MOST_NAMED = 3
"""Changes that a sentence names."""


@dataclass(frozen=True)
class Sources:
    """Sources of a class of workloads."""

    digests: dict[str, str] = field(default_factory=dict)
    """Changes of the source: `class Net`, `layers.py`, and versions here of `package NAME`.

    Of a notebook also names that it defines.
    """

    place: str = ""
    """Name of the file in which the class stands; empty for one that was typed in."""

    packages: set[str] = field(default_factory=set)
    """Installed packages that the source imports, by the names that they are imported by."""

    unknown: set[str] = field(default_factory=set)
    """Names of classes and functions whose source cannot be found: then there is no digest."""

    modules: list[Path] = field(default_factory=list, compare=False)
    """User modules that the source imports: their files, and the top folders of packages."""

    contents: dict[tuple[Path, bool], str | None] = field(default_factory=dict, compare=False)
    """Digests of the contents by path and whether it may be a folder, None where it can't be read.

    Kept from the first reading, so that they are equal for all rows of a run.
    """

    def with_data(self, fields: Mapping[str, Any]) -> dict[str, str]:
        """Digests of the sources, and of the data that the fields of a workload name.

        Data is a file, or what the field `data` names, which may be a folder; other folders may be
        written to. Each path in a list or dict counts.

        Args:
            fields: values by name, or as rows have them, where fields of several types, lists and
                dicts are JSON.
        """
        texts = [
            (name, part, text)
            for name, value in fields.items()
            for part, text in _texts(name, value)
        ]
        keys = {
            part: (Path(text), name == "data")
            for name, part, text in texts
            if Path(text).is_absolute()
        }
        for path, is_data in keys.values():
            if (path, is_data) not in self.contents:
                self.contents[path, is_data] = content_digest(path, folders=is_data)
        contents = {f"field {name}": self.contents[key] for name, key in keys.items()}
        readable = {name: content for name, content in contents.items() if content is not None}
        return dict(sorted({**self.digests, **readable}.items()))

    def differ_from(self, row: Mapping[str, Any]) -> str | None:
        """Say in a line what changed between a row's sources and these; None where nothing did.

        Args:
            row: with its fields in columns `workload_<field>`.
        """
        now = self.columns(row)
        return in_a_line(changes_of_row(row, now), place=self.place) or None

    def columns(self, row: Mapping[str, Any]) -> dict[str, str | None]:
        """Make a row's columns `sources` and `workload_digest`; None where the source is unknown.

        Args:
            row: with its fields in columns `workload_<field>`.
        """
        if self.unknown:
            return {"sources": None, "workload_digest": None}
        fields = {
            name.removeprefix("workload_"): row[name] for name in _workload_columns(tuple(row))
        }
        sources = json.dumps(self.with_data(fields))
        return {
            "sources": sources,
            "workload_digest": hashlib.sha256(sources.encode()).hexdigest()[:16],
        }


def sources_of(workload: Any, *, file: Path | None) -> Sources:
    """Collect what a workload's class is made of; nothing is imported.

    What counts are the files that define the class and its bases, and all modules of the user's own
    that these import, in methods too, and so on. They are compared by their statements, without
    comments, docstrings and `sweep = …`: another axis is not another workload. The loaded modules
    of the sweep file's folder count too, because their names may have been made up at run time. Of
    a notebook the class counts with what it uses; of dtsweep's own workloads the module and its
    neighbours that it imports. A warning names classes whose source cannot be found.
    """
    invalidate_caches()
    sources = Sources(
        place=Path(getattr(sys.modules.get(type(workload).__module__), "__file__", None) or "").name
    )
    imports = [*_loaded_from_folder(file)]
    for base in type(workload).__mro__:
        imports += _of_class(base, sources)
    if sources.unknown:
        unknown = ", ".join(sorted(sources.unknown))
        warnings.warn(
            f"no source of {unknown} can be found, so results will not show when it changes; "
            "define it in a file, or in a notebook cell without %%time",
            stacklevel=1,
        )
    with _script_folder(workload) as script:
        if script is not None:
            digest, names = _read(script.read_bytes(), package="")
            sources.digests[f"script {script.name}"] = digest
            imports += names
        _follow(imports, sources)
    versions = package_versions(sources.packages)
    sources.digests.update({f"package {name}": version for name, version in versions.items()})
    return sources


def _of_class(kind: type, sources: Sources) -> Iterable[str]:
    """Note the source of a class; name what it imports."""
    module = sys.modules.get(kind.__module__)
    importable = None
    if kind.__module__ != "__main__":
        importable = find_module(kind.__module__)
    name = f"class {kind.__qualname__}"
    outermost = kind.__qualname__.partition(".")[0]
    if importable is not None and importable.is_standard and not hasattr(module, outermost):
        # A class that `exec` makes is of `builtins` by default.
        importable = None
    if importable is not None:
        # What comes with Python is left to its version.
        if not importable.is_standard:
            sources.digests[name] = kind.__module__
        return [kind.__module__]
    file = Path(getattr(module, "__file__", None) or "/")
    if not file.is_file():
        definition = typed(kind)
        sources.digests.update({part: _digest(text) for part, text in definition.parts.items()})
        sources.unknown.update(definition.unknown)
        return definition.imports
    sources.digests[name], imports = _read(
        file.read_bytes(), package=getattr(module, "__package__", None) or ""
    )
    return imports


@contextmanager
def _script_folder(workload: Any) -> Iterator[Path | None]:
    """The script of a workload, with its folder on `sys.path` as when it runs; else None."""
    script = getattr(workload, "script_file", None)
    if script is None:
        yield None
        return
    sys.path.insert(0, str(script.parent))
    try:
        yield script
    finally:
        sys.path.remove(str(script.parent))


def _follow(names: Iterable[str], sources: Sources) -> None:
    """Note the modules of these names, and what they import, and so on."""
    waiting, seen = deque(names), set[str]()
    while waiting:
        name = waiting.popleft()
        # A package's own file is run before a module in it.
        for part in _with_parents(name):
            if part not in seen:
                seen.add(part)
                waiting += _of_module(part, sources)


def _with_parents(name: str) -> list[str]:
    if name.startswith(_OURS):
        # Whoever uses one of our workloads does not use the others.
        return [name]
    parts = name.split(".")
    if "" in parts:
        # A relative import that leads out of its package, or whose package is given on the way.
        return []
    return [".".join(parts[:end]) for end in range(1, len(parts) + 1)]


def _of_module(name: str, sources: Sources) -> Iterable[str]:
    """Note a module's source, or the package that it is of; name what it imports."""
    top = name.partition(".")[0]
    if top in _COMPARED_ELSEWHERE and not name.startswith(_OURS):
        return []
    module = find_module(name)
    if module is None or not (module.is_own or name.startswith(_OURS)):
        if module is None:
            is_standard = top in sys.stdlib_module_names
        else:
            is_standard = module.is_standard
        if name == top and not is_standard:
            sources.packages.add(top)
        return []
    if name == top:
        sources.modules.extend(module.places)
    if module.file is None:
        return []
    if module.file.suffix == ".py":
        sources.digests[module.title], imports = _read(
            module.file.read_bytes(), package=module.package
        )
        return imports
    # Of what is compiled the bytes count.
    sources.digests[module.title] = hashlib.sha256(module.file.read_bytes()).hexdigest()[:12]
    return []


@lru_cache(maxsize=1024)
def _read(source: bytes, *, package: str) -> tuple[str, list[str]]:
    """Digest of a module's statements, and its imports; computed once in a run."""
    try:
        tree = parse_counted(decode_source(source))
    except SyntaxError:
        # The ranks will say so, should they import it.
        return hashlib.sha256(source).hexdigest()[:12], []
    return _digest(ast.unparse(tree)), sorted(set(imported(tree, package=package)))


def _loaded_from_folder(sweep_file: Path | None) -> Iterator[str]:
    """Yield the names of the loaded modules in a sweep file's folder.

    Sweep files, scripts and installed packages are left out.
    """
    if sweep_file is None:
        return
    folders = tuple(
        f"{folder}{os.sep}"
        for folder in (sweep_file.parent.absolute(), sweep_file.parent.resolve())
    )
    for name, module in sorted(sys.modules.items()):
        file = getattr(module, "__file__", None) or ""
        if name in ("__main__", "dtsweep") or name.startswith(("dtsweep.", "dtsweep_file_")):
            continue
        if file.startswith(folders) and file.endswith(".py"):
            importable = find_module(name)
            if importable is not None and importable.is_own:
                yield name


@lru_cache(maxsize=8)
def _workload_columns(columns: tuple[str, ...]) -> list[str]:
    """Columns of a workload's fields, found once for all rows of a table."""
    return [name for name in columns if name.startswith("workload_")]


def _texts(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """Texts of a field by name: `data`; of a list or dict `data[0]` or `data[train]`."""
    if isinstance(value, str) and value.startswith(('"', "[", "{")):
        try:
            value = json.loads(value)
        except ValueError:
            # Any text may begin so.
            return
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _texts(f"{name}[{number}]", one)
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(f"{name}[{key}]", one)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """List what changed between the sources of results and those of a sweep, a clause for each.

    A package or file that only one of the two could see is not a difference.

    >>> then = {"a.py": "1", "package timm": "1.0", "field data": "2"}
    >>> changes(then, {"a.py": "3", "package timm": "1.1"})
    ['a.py changed', 'timm 1.0 became 1.1']
    """
    differences = []
    for name in sorted({*then, *now}):
        before = then.get(name)
        after = now.get(name)
        kind, _, rest = name.partition(" ")
        is_seen = None not in (before, after) or kind not in ("package", "field")
        if before != after and is_seen:
            if kind == "package":
                differences.append(f"{rest} {before} became {after}")
            elif kind == "field":
                differences.append(f"the contents of the field {rest} changed")
            else:
                verb = "changed"
                if before is None:
                    verb = "was added"
                elif after is None:
                    verb = "was removed"
                named = name
                if kind == "class":
                    named = f"the class {rest}"
                differences.append(f"{named} {verb}")
    return differences


def changes_of_row(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Compare sources by the columns `workload_digest` and `sources`, in the words of `changes`.

    Empty where a digest is unknown.
    """
    digests = then["workload_digest"], now["workload_digest"]
    if None in digests or digests[0] == digests[1]:
        return []
    return changes(json.loads(then["sources"]), json.loads(now["sources"]))


def in_a_line(differences: list[str], *, place: str) -> str:
    """Join changes to one line.

    >>> differences = ["the class Net changed", "a.py changed", "b.py was added", "c.py changed"]
    >>> in_a_line(differences, place="net.py")
    'the class Net changed (net.py), a.py changed, b.py was added and 1 more'
    """
    if place:
        differences = [
            f"{words} ({place})" if " class " in words else words for words in differences
        ]
    return listed(differences, most=_MOST_NAMED)
