"""Place of a rank's GPU in its machine, and worlds in which two ranks have one GPU."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GpuPlace:
    """The GPU of a rank; a slice of a GPU (MIG) has the bus id of the whole."""

    node: str
    """Host name of its machine."""

    node_id: str | None = None
    """Name of the machine that no other one has; None if it is unknown."""

    pci_bus_id: str | None
    """For example `0000:1b:00.0`; None if it is unknown."""

    @property
    def name(self) -> tuple[str, str | None]:
        """Name of the GPU among all of the world."""
        return (self.node_id or self.node, self.pci_bus_id)


def pci_bus_id(properties: Any) -> str | None:
    """PCI bus id of a GPU as the kernel writes it, such as `0000:1b:00.0`.

    Args:
        properties: of the GPU, as `torch.cuda.get_device_properties` gives them.

    Returns:
        None where torch doesn't know it, as before 2.9, and on ROCm: partitions of a GPU have one
        bus id there, and RCCL accepts them.
    """
    import torch

    names = ("pci_domain_id", "pci_bus_id", "pci_device_id")
    if torch.version.hip or not all(hasattr(properties, name) for name in names):
        return None
    domain, bus, device = (getattr(properties, name) for name in names)
    return f"{domain:04x}:{bus:02x}:{device:02x}.0"


def shared_gpu(places: Mapping[int, GpuPlace | None]) -> str | None:
    """Say which two ranks of a world have one GPU, with the next step, or None.

    NCCL refuses such a world, also if each rank has a slice of the GPU (MIG).
    """
    ranks: dict[tuple[str, str | None], int] = {}
    for rank, place in sorted(places.items()):
        if place is None or place.pci_bus_id is None:
            continue
        other = ranks.setdefault(place.name, rank)
        if other != rank:
            return (
                f"ranks {other} and {rank} on {place.node} have the same GPU "
                f"({place.pci_bus_id}), which NCCL refuses; give each rank its own GPU (a world of "
                "one rank works on a MIG slice)"
            )
    return None
