"""Significance level of one look, where launches are looked at again and again."""

from __future__ import annotations

from functools import cache

import numpy as np

from dtsweep.inference.variance import Numbers

_FIRST_LOOK = 2
"""Launches of a point at the first look: one launch shows no variance."""

_CELLS = 801
"""Cells of the density of a sum, over 8 standard deviations to both sides."""


@cache
def look_level(confidence: float, max_launches: int) -> float:
    """Two-sided significance level of each look, so that all looks together keep the confidence.

    The looks are after 2, 3, … `max_launches` launches. All have the same level (Pocock 1977). It
    is found by numerical integration of the sum of the launches' differences, which goes on as
    long as no look is significant (Armitage, McPherson & Rowe 1969).

    Args:
        confidence: probability of no wrong answer at any look.
        max_launches: launches at the last look; up to 2 there is one look.

    >>> round(look_level(0.95, 2), 4), round(look_level(0.95, 3), 4)
    (0.05, 0.0318)
    """
    from scipy.optimize import brentq
    from scipy.special import ndtr, ndtri

    level = 1 - confidence
    if max_launches <= _FIRST_LOOK:
        return level
    one_look = float(-ndtri(level / 2))
    bound = brentq(
        lambda z: _crossing(z, max_launches) - level, one_look, one_look + 3.0, xtol=1e-6
    )
    return float(2 * ndtr(-bound))


def _crossing(bound: float, last: int) -> float:
    """Probability that a sum of standard normal numbers crosses a bound at any look.

    Args:
        bound: of the sum at each look, in its standard deviations.
        last: numbers of the sum at the last look.
    """
    edges: Numbers = np.linspace(-8, 8, _CELLS) * last**0.5
    width = edges[1] - edges[0]
    density = _normal(edges, _FIRST_LOOK)
    step = _normal(np.subtract.outer(edges, edges), 1) * width
    going_on = 1.0
    for launches in range(_FIRST_LOOK, last + 1):
        if launches > _FIRST_LOOK:
            density = step @ density
        # A cell on the bound counts by its share within.
        inside = (bound * launches**0.5 - np.abs(edges)) / width + 0.5
        density = density * np.clip(inside, 0, 1)
        going_on = float(density.sum() * width)
    return 1 - going_on


def _normal(values: Numbers, variance: float) -> Numbers:
    heights = np.exp(-(values**2) / (2 * variance))
    density: Numbers = heights / (2 * np.pi * variance) ** 0.5
    return density
