"""Modes, compressions and workloads that installed packages declare, by entry points.

The metadata of all packages is read only for a name that dtsweep does not have itself: that takes a
tenth of a second.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module, invalidate_caches
from importlib.metadata import entry_points
from typing import Any

from dtsweep.errors import SweepError, error_line, quoted

GROUPS = {
    "mode": "dtsweep.modes",
    "compression": "dtsweep.compressions",
    "workload": "dtsweep.workloads",
}
"""Groups of entry points by what they declare."""


class DeclarationError(SweepError):
    """A package's declaration can't be used; the message names the package and the next step."""

    is_whole_reason = True


@dataclass(frozen=True, kw_only=True)
class Declared:
    """Entry point of an installed package."""

    kind: str
    """One of `GROUPS`."""

    name: str
    """Value of the axis, or name of the workload."""

    place: str
    """`module:object` of the declaration."""

    package: str
    version: str

    def __str__(self) -> str:
        """Name it in words.

        >>> str(Declared(kind="mode", name="slow", place="a:B", package="slow-net", version="1.2"))
        "mode 'slow' of slow-net 1.2"
        """
        return f"{self.kind} {self.name!r} of {self.package} {self.version}"

    @property
    def again(self) -> str:
        """Next step where the package itself is wrong."""
        return f"repair {self.package}, or install a version that works"


def declared(kind: str) -> list[Declared]:
    """List all entry points of a kind, by name and package."""
    # A notebook may have installed a package just now.
    invalidate_caches()
    found = [
        Declared(
            kind=kind,
            name=entry.name,
            place=entry.value,
            package=entry.dist.name if entry.dist else "an unnamed package",
            version=entry.dist.version if entry.dist else "unknown",
        )
        for entry in entry_points(group=GROUPS[kind])
    ]
    return sorted(found, key=lambda one: (one.name, one.package))


def clashes(found: Iterable[Declared], built_in: Collection[str]) -> list[str]:
    """List the names that dtsweep or another package has too, in one line each.

    >>> one = Declared(kind="mode", name="ddp", place="a:B", package="fast", version="1")
    >>> clashes([one], ["ddp"])
    ["mode 'ddp' of fast 1 has the name of dtsweep's own; rename it there, or uninstall fast"]
    """
    first: dict[str, Declared] = {}
    lines = []
    for one in found:
        other = first.setdefault(one.name, one)
        if one.name in built_in:
            words = "has the name of dtsweep's own; rename it there"
        elif other is not one:
            words = f"has a name that {other.package} {other.version} declares too; rename one"
        else:
            continue
        lines.append(f"{one} {words}, or uninstall {one.package}")
    return lines


@cache
def entry_of(kind: str, name: str) -> Declared:
    """Find the entry point of a name.

    Raises:
        LookupError: no installed package declares it; that is asked again the next time.
        DeclarationError: two packages do.
    """
    found = [one for one in declared(kind) if one.name == name]
    if not found:
        raise LookupError(name)
    for line in clashes(found, ()):
        raise DeclarationError(line, word=name)
    return found[0]


def declaring_packages() -> dict[str, str]:
    """Versions of all packages here that declare something for dtsweep, by name."""
    found = [one for kind in GROUPS for one in declared(kind)]
    return {one.package: one.version for one in found}


def names_of(kind: str, built_in: Collection[str]) -> list[str]:
    """List the names that packages declare.

    Raises:
        DeclarationError: a package declares a name that dtsweep has itself.
    """
    found = declared(kind)
    for line in clashes([one for one in found if one.name in built_in], built_in):
        raise DeclarationError(line)
    return list(dict.fromkeys(one.name for one in found))


def is_declared(kind: str, name: str) -> bool:
    """True if an installed package declares the name."""
    try:
        entry_of(kind, name)
    except LookupError:
        return False
    return True


def package_of(kind: str, name: str) -> dict[str, str]:
    """Name and version of the package that declares a name; empty if none here does."""
    if not is_declared(kind, name):
        return {}
    one = entry_of(kind, name)
    return {one.package: one.version}


def undeclared(kind: str, name: str) -> SweepError:
    """Error for a name that no package here declares."""
    return SweepError(
        f"no package that is installed here declares the {kind} {name!r}; install the one that "
        "does",
        word=name,
    )


def load(kind: str, name: str, expected: type) -> Any:
    """Import a declaration, which has to be of the expected type.

    Plans are made without torch: the module of a mode or compression names its class by
    `module:class` and must not import it.

    Raises:
        LookupError: no installed package declares it.
        DeclarationError: it can't be imported, imports torch, or is of another type.
    """
    one = entry_of(kind, name)
    had_torch = "torch" in sys.modules
    value = import_place(one, one.place)
    if kind != "workload" and not had_torch and "torch" in sys.modules:
        raise DeclarationError(
            f"{one} imports torch with its declaration {one.place}, and plans are made without; "
            f"declare it in a module that names the class as text ({one.again})",
            word=name,
        )
    if not isinstance(value, expected):
        raise DeclarationError(
            f"{one} declares {quoted(value)} ({one.place}), no {expected.__name__}; {one.again}",
            word=name,
        )
    return value


def import_place(one: Declared, place: str) -> Any:
    """Import what `module:object` names, for the declaration `one`.

    Raises:
        DeclarationError: there is no such module or object, or its import fails.
    """
    module, colon, attribute = place.partition(":")
    if not (module and colon and attribute):
        raise DeclarationError(f"{one} names {quoted(place)}; write module:object ({one.again})")
    try:
        value: Any = import_module(module)
        for part in attribute.split("."):
            value = getattr(value, part)
    except (Exception, SystemExit) as error:  # a package's own code may raise anything
        raise DeclarationError(
            f"{one} can't be imported from {place}: {error_line(error)}; {one.again}",
            word=one.name,
        ) from error
    return value


def class_of(kind: str, name: str, place: str, base: type, *, built_in: Collection[str]) -> Any:
    """Import the class that implements a name, in a process that has torch.

    Args:
        kind: one of `GROUPS`.
        name: of dtsweep's own, or of an installed package.
        place: `module:class`.
        base: that the class extends.
        built_in: names of dtsweep's own.

    Raises:
        DeclarationError: an installed package's can't be imported, or is another kind of class.
    """
    if name not in built_in:
        return load_class(entry_of(kind, name), place, base)
    module, _, attribute = place.partition(":")
    return getattr(import_module(module), attribute)


def load_class(one: Declared, place: str, base: type) -> Any:
    """Import the class that a declaration names, in a process that has torch.

    Raises:
        DeclarationError: it can't be imported, or does not extend the base class.
    """
    kind = import_place(one, place)
    if not (isinstance(kind, type) and issubclass(kind, base)):
        raise DeclarationError(
            f"{one} names {place}, which does not extend {base.__name__}; {one.again}",
            word=one.name,
        )
    return kind


def check_reads(one: Declared, reads: Mapping[str, Any], allowed: Collection[str]) -> None:
    """Refuse a declaration that reads a field which is not one to choose.

    Raises:
        DeclarationError: it names the field and those that are allowed.
    """
    for field in reads:
        if field not in allowed:
            raise DeclarationError(
                f"{one} reads {quoted(field)}; a {one.kind} can read {', '.join(allowed)}, and "
                f"has the other fields of a point in any case ({one.again})",
                word=one.name,
            )
