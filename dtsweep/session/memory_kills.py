"""Number of processes of a container that the kernel killed for lack of memory.

The kernel counts them by control group.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


@dataclass(frozen=True, kw_only=True)
class MemoryKills:
    """Kills that a control group has counted so far."""

    path: str
    """Of the file on its node."""

    count: int


def memory_kills(groups: Path = GROUPS, membership: Path = _OWN) -> MemoryKills | None:
    """Kills counted by this process's control group; None if there is no such counter.

    Args:
        groups: where control groups are mounted.
        membership: file that names the control groups of this process, as in proc(5).
    """
    for line in membership.read_text(encoding="utf-8").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            places = [groups / path.lstrip("/"), groups]
            name = "memory.events"
        elif "memory" in controllers.split(","):
            places = [groups / "memory" / path.lstrip("/"), groups / "memory"]
            name = "memory.oom_control"
        else:
            continue
        # A container may see its own group as the root, under a name that is the host's.
        for file in (place / name for place in places):
            if (count := kills_in(str(file))) is not None:
                return MemoryKills(path=str(file), count=count)
    return None


def kills_in(path: str) -> int | None:
    """Value of `oom_kill` in a file of the kernel.

    None where it is gone or does not count them.
    """
    try:
        lines = Path(path).read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
