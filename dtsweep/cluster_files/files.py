"""Files of the user that a sweep needs on the nodes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dtsweep import errors
from dtsweep.errors import SweepError
from dtsweep.provenance.sources import Sources
from dtsweep.sweep.secret import TELLING, has_credentials, is_secret
from dtsweep.sweep.settings import Sweep

CONFIG_MAP_BYTES = 900_000
"""Most bytes of files in a ConfigMap, which Kubernetes limits to 1 MiB."""

KEY = re.compile(r"[-._a-zA-Z0-9]+")
"""Names that a ConfigMap takes."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """Files of the user."""

    sweep: Path
    """The sweep file, absolute."""

    others: tuple[Path, ...]
    """Modules, packages and the script that it needs, absolute."""

    named: tuple[Path, ...] = ()
    """Files that options of the run name, absolute."""

    @property
    def is_single(self) -> bool:
        """True if the sweep file needs no other file of the user."""
        return not self.others

    @property
    def sweep_path(self) -> str:
        """Path of the sweep file from the project's folder on the nodes."""
        if self.is_single and not self.sweep.is_relative_to(_here()):
            return self.sweep.name
        return _from_here(self.sweep)

    def in_project(self) -> list[str]:
        """Paths of all modules and of the sweep file from the working directory.

        Raises:
            SweepError: one lies elsewhere.
        """
        return [_from_here(path) for path in (self.sweep, *self.others)]

    def for_config_map(self) -> dict[str, Path]:
        """Files that a ConfigMap has, by their path from the project's folder on the nodes.

        Raises:
            SweepError: one lies elsewhere, or has a name that a ConfigMap does not take.
        """
        files = {_from_here(path): path for path in self.named}
        if self.is_single:
            files[self.sweep_path] = self.sweep
        names = [Path(path).name for path in files]
        for name in names:
            if not KEY.fullmatch(name) or names.count(name) > 1:
                raise SweepError(
                    f"a ConfigMap can't have a file {name!r}: names are of letters, digits, '-', "
                    "'_' and '.', once each; rename it"
                )
        return files


def files_of(sweep: Sweep, path: Path, sources: Sources, *, arguments: Iterable[str]) -> Files:
    """Files of a sweep.

    Args:
        sweep: as it was read.
        path: its file.
        sources: of its workload.
        arguments: options of the run and their values.
    """
    script = getattr(sweep.workload, "script_file", None)
    others = [*sources.modules]
    if script is not None:
        others.append(script)
    file = path.resolve()
    package = Path(errors.__file__).resolve().parent
    found = {other.resolve() for other in others}
    found = {other for other in found if other != file and not other.is_relative_to(package)}
    values = [argument.rpartition("=")[2] for argument in arguments]
    named = {Path(value).resolve() for value in values if Path(value).is_file()}
    return Files(sweep=file, others=tuple(sorted(found)), named=tuple(sorted(named)))


def texts_without_secrets(files: Files, environment: Mapping[str, str]) -> dict[str, str]:
    """Texts of the files that go into a ConfigMap, which anyone in a namespace may read.

    Returns:
        Texts by the path from the project's folder on the nodes.

    Raises:
        SweepError: a text has a secret, or all are too long.
    """
    texts = {path: file.read_text("utf-8") for path, file in files.for_config_map().items()}
    if sum(len(text.encode()) for text in texts.values()) > CONFIG_MAP_BYTES:
        raise SweepError(
            f"{files.sweep.name} is too long for a ConfigMap; move parts of it into a module next "
            "to it, and all goes into the image"
        )
    for path, text in texts.items():
        _refuse_secrets(path, text, environment)
    return texts


def _refuse_secrets(path: str, text: str, environment: Mapping[str, str]) -> None:
    for name, value in environment.items():
        if is_secret(name, value) and len(value) >= TELLING and value in text:
            raise SweepError(
                f"{path} has the value of {name} in it, which would go into a ConfigMap; read it "
                f"there from os.environ[{name!r}]"
            )
    if has_credentials(text):
        raise SweepError(
            f"{path} has a URL with a password or token, which would go into a ConfigMap; read it "
            "there from os.environ"
        )


def _here() -> Path:
    return Path.cwd().resolve()


def _from_here(path: Path) -> str:
    if not path.is_relative_to(_here()):
        raise SweepError(
            f"{path} is not in the working directory, whose files go to the nodes; run the command "
            "in a folder that has all files of the sweep"
        )
    return path.relative_to(_here()).as_posix()
