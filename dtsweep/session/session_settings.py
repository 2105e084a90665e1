"""Settings of all sessions of a run, and the workload's code as it is shipped to ranks."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ray import cloudpickle


@dataclass(frozen=True, kw_only=True)
class Code:
    """The workload as it travels, once per session."""

    pickled: bytes
    """The object; a class from the sweep file goes by value."""

    folder: str | None
    """The sweep file's folder, for what lies next to it."""

    start_folder: str | None = None
    """Folder in which the run was started."""

    packages: frozenset[str] = frozenset()
    """Installed packages that the workload's source imports.

    Their versions on the ranks are part of `env_id`.
    """

    def load(self) -> Any:
        """Unpickle the workload in this process."""
        if self.folder is not None and Path(self.folder).is_dir() and self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        return cloudpickle.loads(self.pickled)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of all sessions of a run."""

    code: Code
    cpus_per_worker: int
    gpus_per_worker: int
    environment: Mapping[str, str] = field(repr=False)
    node_timeout_s: float
    storage: str
    """A folder on the driver's node for what Ray Train leaves."""

    is_private: bool
    """True if Ray was started for this run, on this machine."""

    known_devices: frozenset[str] = frozenset()
    """Device models of the results so far; ranks on another one are refused. Empty is any."""

    nests: bool = False
    """True if a session also runs smaller worlds, made of some of its ranks."""

    is_autoscaled: bool = False
    """True if an autoscaler adds and removes nodes: they are asked for before a session starts."""
