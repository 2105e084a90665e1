"""Prices of nodes: by node type from a file, or one price for every node."""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted

SPOT = "@spot"
"""Ending of a node type whose node is a spot node by its label."""

_COUNTED = re.compile(r"(.+?):(\d+(?:\.\d+)?)(?:\+|$)")
_NUMBERS = ("usd_per_hour", "spot_usd_per_hour")


@dataclass(frozen=True, kw_only=True)
class PricedType:
    """Price of a node of one type."""

    name: str
    usd_per_hour: float | None = None
    """Price of a node on demand; None of a type whose nodes are all spot nodes."""

    spot_usd_per_hour: float | None = None
    """Price of a spot node; None where it is not given."""

    def price(self, *, spot: bool) -> float | None:
        """Price of a node for an hour in USD; None where it is not given."""
        if spot or self.usd_per_hour is None:
            return self.spot_usd_per_hour
        return self.usd_per_hour


@dataclass(frozen=True, kw_only=True)
class Prices:
    """Prices of nodes for an hour in USD."""

    types: Mapping[str, PricedType] = field(default_factory=dict)
    every_node: float | None = None
    """Price of every node, in place of those of `types`."""

    source: str = "--price"
    """File that they were read from."""

    def entry_of(self, node_type: str) -> PricedType | None:
        """Entry of a node type; None where there is none."""
        return self.types.get(node_type.removesuffix(SPOT))

    def price_of(self, node_type: str) -> float | None:
        """Price of a node of this type for an hour in USD; None where it is not given."""
        if self.every_node is not None:
            return self.every_node
        entry = self.entry_of(node_type)
        if entry is None:
            return None
        return entry.price(spot=node_type.endswith(SPOT))

    def how_to_add(self, node_type: str) -> str:
        """Say what to add for a node type without a price."""
        name = node_type.removesuffix(SPOT)
        if not re.fullmatch(r"[\w-]+", name, re.ASCII):
            name = f'"{name}"'
        key = "usd_per_hour"
        if node_type.endswith(SPOT):
            key = "spot_usd_per_hour"
        return f"add {key} to [{name}] of {self.source}"

    def of_nodes(self, node_types: Mapping[str, float]) -> float | None:
        """Price of nodes for an hour in USD; None where one of them has no price.

        Args:
            node_types: number of nodes by type; a part of a node is a fraction.
        """
        total = 0.0
        for node_type, count in node_types.items():
            price = self.price_of(node_type)
            if price is None:
                return None
            total += price * count
        return total


def shape_name(resources: Mapping[str, float]) -> str:
    """Name a node without a type by its GPUs and CPUs.

    >>> shape_name({"CPU": 96, "GPU": 8, "memory": 1e9}), shape_name({"CPU": 2})
    ('8gpu-96cpu', '2cpu')
    """
    gpus = resources.get("GPU", 0)
    prefix = ""
    if gpus:
        prefix = f"{gpus:g}gpu-"
    return f"{prefix}{resources.get('CPU', 0):g}cpu"


def written_types(counts: Mapping[str, float]) -> str:
    """Write numbers of nodes by type, as the column `node_types` has them.

    >>> written_types({"gpu": 2, "cpu@spot": 0.5})
    'cpu@spot:0.5+gpu:2'
    """
    return "+".join(f"{name}:{count:g}" for name, count in sorted(counts.items()))


def read_types(text: str) -> dict[str, float]:
    """Read what `written_types` wrote.

    >>> read_types("cpu@spot:0.5+gpu:2")
    {'cpu@spot': 0.5, 'gpu': 2.0}
    """
    return {name: float(count) for name, count in _COUNTED.findall(text)}


def prices_of(file: str | Path | None, price: float | None) -> Prices | None:
    """Prices that a user gives: of a file, or one for every node; None without either.

    Raises:
        SweepError: both are given, or they can't be read.
    """
    if file is not None and price is not None:
        raise SweepError("--prices has a price for each node type, --price one for all; give one")
    if file is not None:
        return read_prices(Path(file))
    if price is None:
        return None
    return Prices(every_node=_number(price, "--price"))


def read_prices(file: Path) -> Prices:
    """Read a file of prices, in TOML: a table for each node type.

    Raises:
        SweepError: it can't be read, or has something that is not a price.
    """
    try:
        tables = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise SweepError(f"prices {str(file)!r} can't be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        line = " ".join(str(error).split())
        raise SweepError(f"prices {str(file)!r} are not TOML: {line}") from error
    types = {name: _type_of(file, name, table) for name, table in tables.items()}
    if not types:
        raise SweepError(f"{file} has no node type; add one: [gpu] with usd_per_hour = 2.5")
    return Prices(types=types, source=str(file))


def _type_of(file: Path, name: str, table: Any) -> PricedType:
    """Read the table of one node type."""
    place = f"{file}: [{name}]"
    if not isinstance(table, dict):
        raise SweepError(
            f"{file}: {name} must be a table of a node type: [{name}] with usd_per_hour below it"
        )
    if name.endswith(SPOT):
        raise SweepError(f"{place}: spot nodes have the key spot_usd_per_hour of their type")
    for key in table:
        if key not in _NUMBERS:
            raise SweepError(f"{place} has no key {quoted(key)}; {did_you_mean(key, _NUMBERS)}")
    numbers = {
        key: _number(table[key], f"{place}: {key} =")
        for key in _NUMBERS
        if table.get(key) is not None
    }
    if not numbers:
        raise SweepError(f"{place} needs usd_per_hour: USD for one node for one hour")
    return PricedType(name=name, **numbers)


def _number(value: Any, place: str) -> float:
    """A price or an amount: finite and not negative."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or value < 0:
        raise SweepError(f"{place} {quoted(value)} must be a finite number, 0 or more")
    return float(value)
