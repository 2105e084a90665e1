"""Settings that the performance model reaches: those that the measured points show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dtsweep.analysis.setting_values import WITHOUT_EFFECT, axis_name, is_read, number_of, text_of
from dtsweep.analysis.settings import Settings
from dtsweep.analysis.setups import SIZES, Encoding
from dtsweep.model.limits import REACH
from dtsweep.sweep.point import DEFAULTS
from dtsweep.text import format_number


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Settings that predictions can have."""

    constant: Mapping[str, frozenset[str]]
    """Measured values of the settings whose effect is not known."""

    ranges: Mapping[str, tuple[float, float]]
    """Smallest and largest measured value of the numbers that they differ in."""

    def reason(self, settings: Settings) -> str | None:
        """Say why a configuration can't be predicted; None if its settings are within reach."""
        for name, known in self.constant.items():
            if name in settings and text_of(settings[name]) not in known:
                return f"unsupported: measured {axis_name(name)}: {', '.join(sorted(known))}"
        for name, (low, high) in self.ranges.items():
            if not is_read(settings, name):
                continue
            value = number_of(settings.get(name))
            ends = [format_number(end, digits=3) for end in (low, high)]
            if not value:
                return (
                    f"unsupported: measured {axis_name(name)} {' to '.join(ends)}, and not "
                    f"{text_of(settings.get(name))}"
                )
            if not low / REACH <= value <= high * REACH:
                reach = [format_number(end, digits=3) for end in (low / REACH, high * REACH)]
                return (
                    f"unsupported: measured {axis_name(name)} {' to '.join(ends)}; "
                    f"predictions reach {' to '.join(reach)}"
                )
        return None


def reach_of(measured: Sequence[Settings], encoding: Encoding) -> Reach:
    """Find the values that measured configurations have.

    Args:
        measured: settings of at least one.
        encoding: of them.
    """
    varying = {*encoding.categories, *encoding.numbers, *SIZES, *WITHOUT_EFFECT}
    if "compression" in varying:
        varying |= {"compression_coding"}
    names = dict.fromkeys(name for one in measured for name in one if name not in varying)
    ranges = {}
    for name in encoding.numbers:
        values = list(filter(None, (number_of(one.get(name)) for one in measured)))
        ranges[name] = (min(values), max(values))
    constant = {name: frozenset(text_of(one.get(name)) for one in measured) for name in names}
    # Null is not a value of these: rows of tables don't say what it was.
    unknown = [name for name in constant if DEFAULTS.get(name) is not None]
    constant = {
        name: known
        for name, known in constant.items()
        if name not in unknown or known != frozenset({text_of(None)})
    }
    return Reach(constant=constant, ranges=ranges)
