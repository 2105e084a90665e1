"""Whether a later run is worse than an earlier one, with the number of comparisons taken into account."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.contrasts import counted_of, logarithms_of, reach_of
from dtsweep.analysis.launches import check_asked
from dtsweep.analysis.power import MOST_LAUNCHES, detectable, enough, shares_after
from dtsweep.analysis.spread import Launches
from dtsweep.analysis.variance import Known, Numbers, pooled_is_better
from dtsweep.measure.statistics import students_t

if TYPE_CHECKING:
    import pandas as pd

LEVEL = 0.05
"""How often at most a family of comparisons says anything of what does not differ."""

_UNTESTED = "nothing says how far launches differ: repeats=2 of both first"

COLUMNS = (
    *("question", "point_id", "env_id", "hosts", "of", "ratio", "ratio_low", "ratio_high", "p_value", "p_adjusted"),
    *("verdict", "is_regression", "detectable_ratio", "more_launches", "more_launches_reason"),
    *("launches_base", "launches_new", "caution"),
)

_PAIR = ("point_id", "env_id", "hosts")


def regressions(
    questions: Mapping[str, tuple[pd.DataFrame, pd.DataFrame]], *, of: str | Sequence[str], threshold: float
) -> pd.DataFrame:
    """Compare the points of an earlier with those of a later run: Student's t on logarithms of launch means.

    Under the hypothesis that nothing has changed the launches of both are launches of one job, so both say how far
    these differ, also where one of the two has a single launch. What launches add is pooled over the points as in
    `difference`. All comparisons that could be tested are one family: Holm's method keeps the probability of any wrong
    "slower" or "faster" in it at 5 %, however the comparisons depend on each other (1979).

    Args:
        questions: by name, the trials of the earlier and of the later run, as `measured` gives them, with equal
            `env_id` where they are of one machine. `launch` is what counts as one draw.
        of: one of `ASKED`, or several.
        threshold: share by which a value must be worse to be a regression.

    Returns:
        A row per question, point that both have, and `of`: `question`; `POINT`; `ratio`, that of the later over the
        earlier, with `ratio_low` and `ratio_high`, its own 95 % interval; `p_value`, and `p_adjusted` by Holm;
        `verdict` on the later: "faster", "slower", "not distinguishable", or "unknown: " and why; `is_regression`:
        slower, and by the estimate more than `threshold` worse; `detectable_ratio`, the smallest true ratio above 1
        that these launches tell with 80 % probability at the least level of the family; `more_launches` and
        `more_launches_reason`, as in `difference`, at that level; `launches_base`, `launches_new`; `caution`.

    Raises:
        SweepError: `of` has none of `ASKED`.
    """
    import pandas as pd

    names = (of,) if isinstance(of, str) else tuple(dict.fromkeys(of))
    check_asked(*names)
    found = [
        _compared(base, new, of=name).assign(question=question)
        for question, (base, new) in questions.items()
        for name in names
    ]
    rows = pd.concat(found, ignore_index=True)
    tested = rows["p_value"].notna()
    rows["p_adjusted"] = np.nan
    rows.loc[tested, "p_adjusted"] = holm(rows.loc[tested, "p_value"].to_numpy("float64"))
    is_rate = rows["of"] == "samples_per_s"
    told, worse = rows["p_adjusted"] <= LEVEL, (rows["estimate"] < 0) == is_rate
    rows["verdict"] = np.select([~tested, ~told, worse], [rows["unknown"], "not distinguishable", "slower"], "faster")
    beyond = np.where(is_rate, rows["ratio"] < 1 - threshold, rows["ratio"] > 1 + threshold)
    rows["is_regression"] = (rows["verdict"] == "slower") & beyond
    return _with_power(rows, level=LEVEL / max(1, int(tested.sum())))


def holm(p_values: Numbers) -> Numbers:
    """Adjust p-values to the number of comparisons: each at most 5 % is told, with 5 % risk of any wrong one.

    >>> holm(np.array([0.01, 0.04, 0.03])).tolist()
    [0.03, 0.06, 0.06]
    """
    order = p_values.argsort(kind="stable")
    factors = np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(1, np.maximum.accumulate(factors * p_values[order]))
    return adjusted


def _compared(base: pd.DataFrame, new: pd.DataFrame, *, of: str) -> pd.DataFrame:
    """Rows of one quantity, without what the family decides."""
    import pandas as pd

    columns = [*_PAIR, "launch", "caution", of, f"{of}_error"]
    both = pd.concat([run[columns].assign(side=side) for side, run in (("base", base), ("new", new))])
    both = both.assign(point_id=both["side"] + " " + both["point_id"], launch=both["side"] + " " + both["launch"])
    rows = [row for _, there in both.groupby("env_id", dropna=False) for row in _in_environment(there, of)]
    names = [*_PAIR, "estimate", "reach", "degrees", "launches_base", "launches_new", "caution", "unknown"]
    return pd.DataFrame(rows, columns=names).assign(of=of).pipe(_with_ratios)


def _in_environment(trials: pd.DataFrame, of: str) -> list[dict[str, Any]]:
    launches = logarithms_of(trials, of)
    rows = launches.points.assign(row=range(len(launches.points)))
    sides = rows["point_id"].str.partition(" ")
    rows = rows.assign(side=sides[0], point_id=sides[2])
    pairs = rows[rows["side"] == "base"].merge(rows[rows["side"] == "new"], on=list(_PAIR), suffixes=("_base", "_new"))
    if pairs.empty:
        return []
    base, new = (pairs[f"row_{side}"].to_numpy("int64") for side in ("base", "new"))
    reach, degrees, _ = _known(launches, base, new)
    estimate = launches.centres[new] - launches.centres[base]
    cautions = trials.groupby(list(_PAIR), dropna=False)["caution"].first()
    counts = launches.counts
    return [
        {
            **{name: pair[name] for name in _PAIR},
            "estimate": estimate[place],
            "reach": reach[place],
            "degrees": degrees[place],
            "launches_base": counts[base[place]],
            "launches_new": counts[new[place]],
            "caution": " ".join(dict.fromkeys(_caution(cautions, pair, side) for side in ("base", "new"))).strip(),
            "unknown": "unknown: one launch each" if counts[base[place]] == counts[new[place]] == 1 else "unknown",
        }
        for place, pair in enumerate(pairs.to_dict("records"))
    ]


def _caution(cautions: pd.Series[Any], pair: Mapping[Any, Any], side: str) -> str:
    return str(cautions.loc[(f"{side} {pair['point_id']}", pair["env_id"], pair["hosts"])])


def _known(launches: Launches, base: Numbers, new: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """What `reach_of` gives of the differences, from the common variance of both sides."""
    counts = launches.counts
    ends = 1 / counts[base] + 1 / counts[new]
    free = counts[base] + counts[new] - 2
    with np.errstate(invalid="ignore", divide="ignore"):
        own = (launches.squares[base] + launches.squares[new]) / free * ends
        return reach_of(
            launches.apart,
            Known(own, np.asarray(free, dtype=np.float64)),
            pooled=pooled_is_better(free, pooled=counted_of(launches.apart), launches=free + 1),
            within=launches.within,
            total=lambda each: (each / counts)[base] + (each / counts)[new],
        )


def _with_ratios(rows: pd.DataFrame) -> pd.DataFrame:
    """Turn logarithms into ratios and a p-value."""
    from scipy.special import stdtr

    rows = rows.astype(dict.fromkeys(["estimate", "reach", "degrees"], "float64"))
    errors = rows["reach"] / students_t(rows["degrees"])
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2 * stdtr(rows["degrees"], -(rows["estimate"].abs() / errors))
    ends = {"": rows["estimate"], "_low": rows["estimate"] - rows["reach"], "_high": rows["estimate"] + rows["reach"]}
    ratios = {f"ratio{end}": np.exp(logs) for end, logs in ends.items()}
    # Equal values of launches that are all equal differ by nothing.
    return rows.assign(error=errors, p_value=p_values.mask((errors == 0) & (rows["estimate"] == 0), 1.0), **ratios)


def _with_power(rows: pd.DataFrame, *, level: float) -> pd.DataFrame:
    """Add what these launches tell at this level, and how many more a row needs that tells nothing."""
    more = np.arange(MOST_LAUNCHES + 1)
    logs = detectable(rows["error"], rows["degrees"], level=level)
    counted: list[tuple[int | None, str | None]] = []
    for row in rows.to_dict("records"):
        if row["verdict"] != "not distinguishable":
            reason = "" if row["verdict"] in ("faster", "slower") else _UNTESTED
            counted.append((None, reason) if reason else (0, None))
            continue
        shares = shares_after([row["launches_base"], row["launches_new"]], more)
        free = row["degrees"] + 2 * more
        needed = detectable(row["error"] * shares**0.5, free, known=row["degrees"], level=level)
        counted.append(enough(row["estimate"], needed))
    rows = rows.assign(
        detectable_ratio=np.exp(logs),
        more_launches=[number for number, _ in counted],
        more_launches_reason=[reason for _, reason in counted],
    ).astype({"more_launches": "Int64", "more_launches_reason": object})
    return rows[list(COLUMNS)]
