"""What is done and what is to do, from a sweep and rows of results; no Ray."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dtsweep import Measure, Sweep, SweepError, workloads
from dtsweep.axes import candidates
from dtsweep.digest import workload_digest
from dtsweep.order import point_row
from dtsweep.plan import make_plan, new_skips
from dtsweep.schema import TRIALS
from dtsweep.sweepfile import read_sweep
from dtsweep.versions import versions

SWEEP = Sweep(
    workload=workloads.Gpt(),
    axes={"workers": [1, 2], "micro_batch": [1, 2, 3]},
    skip=lambda p: "odd" if p.micro_batch == 3 else None,
)


def rows(sweep: Sweep = SWEEP, *, status: str = "ok", **more: Any) -> list[dict[str, Any]]:
    """What a run of the sweep would have stored, all trials ending alike."""
    empty = {column.name: None for column in TRIALS}
    digest = workload_digest(sweep.workload, folder=None)
    return [
        {
            **empty,
            **point_row(sweep, trial.point),
            **versions(),
            "trial_id": trial.trial_id,
            "workload_digest": digest,
            "status": status,
            **more,
        }
        for trial in make_plan(sweep, candidates(sweep), []).to_run
    ]


def plan(sweep: Sweep, stored: list[dict[str, Any]], rerun: str | None = None) -> tuple[int, int]:
    made = make_plan(sweep, candidates(sweep), stored, rerun=rerun)
    return len(made.to_run), len(made.done)


@pytest.mark.parametrize(
    ("status", "resumed", "failed", "everything"),
    [
        ("ok", (0, 4), (0, 4), (4, 0)),
        ("user_error", (0, 4), (4, 0), (4, 0)),
        ("oom_device", (0, 4), (4, 0), (4, 0)),
        ("rank_died", (4, 0), (4, 0), (4, 0)),
        ("cancelled", (4, 0), (4, 0), (4, 0)),
    ],
)
def test_what_is_measured_again_depends_on_how_it_ended(
    status: str, resumed: tuple[int, int], failed: tuple[int, int], everything: tuple[int, int]
) -> None:
    stored = rows(status=status)
    assert plan(SWEEP, stored) == resumed
    assert plan(SWEEP, stored, "failed") == failed
    assert plan(SWEEP, stored, "all") == everything


def test_an_ok_attempt_counts_whatever_came_after_it() -> None:
    assert plan(SWEEP, rows() + rows(status="rank_died")) == (0, 4)


def test_repeats_run_one_after_the_other_in_sessions_of_their_own() -> None:
    made = make_plan(replace(SWEEP, measure=Measure(repeats=2)), candidates(SWEEP), [])
    assert [trial.repeat for trial in made.to_run] == [1, 1, 1, 1, 2, 2, 2, 2]
    assert made.session_starts == 4
    assert make_plan(replace(SWEEP, measure=Measure(fresh=True)), candidates(SWEEP), []).session_starts == 4


def test_results_of_another_version_are_refused_until_all_is_measured_anew() -> None:
    old = rows(torch_version="2.0.0")
    with pytest.raises(SweepError, match=r"torch_version 2\.0\.0, this sweep has .*--rerun all"):
        plan(SWEEP, old)
    assert plan(SWEEP, old, "all") == (4, 0)
    assert plan(SWEEP, old + rows()) == (0, 4)
    # --rerun all was interrupted after two of four: the other two are still of the old version.
    assert plan(SWEEP, old + rows()[:2]) == (2, 2)


def test_a_skipped_point_is_stored_again_only_for_a_new_reason() -> None:
    skipped = make_plan(SWEEP, candidates(SWEEP), []).skipped
    first = new_skips(SWEEP, skipped, [])
    assert [row["reason"] for row in first] == ["odd", "odd"]
    assert new_skips(SWEEP, skipped, first) == []


OWN = '''
"""?"""
from dataclasses import dataclass
from torch import nn
from dtsweep import Sweep

WIDTH = 3

def net():
    return nn.Linear(WIDTH, 1)

@dataclass(frozen=True)
class Own:
    def build(self):
        return net()
    def batch(self, samples, device): ...
    def loss(self, model, batch): ...

sweep = Sweep(workload=Own(), axes={"workers": [1]})
'''


@pytest.mark.parametrize(
    ("old", "new", "is_another"),
    [
        ("WIDTH = 3", "WIDTH = 4", True),
        ("nn.Linear(WIDTH, 1)", "nn.Linear(WIDTH, 2)", True),
        ("[1]", "[1, 2]", False),
    ],
)
def test_the_digest_follows_what_the_workload_uses_and_nothing_else(
    tmp_path: Path, old: str, new: str, is_another: bool
) -> None:
    digests = []
    for folder, text in (("a", OWN), ("b", OWN.replace(old, new))):
        path = tmp_path / folder / "own.py"
        path.parent.mkdir()
        path.write_text(text)
        sweep, _ = read_sweep(path)
        digests.append(workload_digest(sweep.workload, folder=path.parent))
        sys.path.remove(str(path.parent))
    assert (digests[0] != digests[1]) == is_another
