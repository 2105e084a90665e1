"""Features and the machines on which they ran: the log backs each, and plan and doctor say so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dtsweep import Resources, Sweep
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.evidence import EVIDENCE, MACHINES, tried_on, untried_in
from dtsweep.sweep.modes import MODES, OF_THE_USER, SERVING
from dtsweep.sweep.point_axes import AXES
from dtsweep.sweep.precision import PRECISIONS
from tests.cli.called import as_json, in_one_line
from tests.linear import Linear
from tests.pages import ROOT

DEVICES = {
    "nowhere": r"they need a GPU",
    "CPU": r"no GPU|without a GPU|on a CPU",
    "one GPU": r"on one NVIDIA (H100|H200|A100)",
    "several GPUs": r"on (two|four|eight|\d+) NVIDIA",
    "cluster": r"on (two|three|four|\d+) machines",
}
"""Words by which an entry of the log names the machine."""

ENTRIES = [(machine, day) for machine, days in EVIDENCE.items() for day in days]


@pytest.mark.parametrize(("machine", "day"), ENTRIES)
def test_an_entry_of_the_log_names_each_feature_and_its_machine(machine: str, day: str) -> None:
    log = (ROOT / f"docs/log/{day}.md").read_text("utf-8")
    entries = [
        text for text in re.split("^## ", log, flags=re.M) if re.search(DEVICES[machine], text)
    ]
    for feature in EVIDENCE[machine][day].split():
        name = re.escape(feature.rpartition("=")[2])
        assert [text for text in entries if re.search(rf"(?<!\w){name}(?!\w)", text)], feature


def test_every_mode_compression_precision_and_axis_has_its_evidence() -> None:
    named = {
        name for days in EVIDENCE.values() for names in days.values() for name in names.split()
    }
    values = {
        "sync": [*MODES, *SERVING, *OF_THE_USER],
        "compression": COMPRESSIONS,
        "precision": PRECISIONS,
    }
    features = {f"{axis}={value}" for axis in values for value in values[axis]}
    assert features | (AXES.keys() - values.keys()) <= named
    assert {name for name in named if name.partition("=")[0] in values} == features
    assert set(EVIDENCE) <= set(MACHINES)


def test_a_sweep_wants_what_its_points_use_on_the_machine_of_the_largest() -> None:
    axes = {"workers": [1, 2], "overlap": [True, False], "precision": ["bf16"]}
    on_gpus = Sweep(workload=Linear(), axes=axes, resources=Resources(gpus_per_worker=1))
    found = untried_in(on_gpus, candidates(on_gpus))
    assert found is not None
    # Nothing ran on several GPUs yet; modes and bf16 ran on one.
    assert {row["feature"]: (row["wanted"], row["tried"]) for row in found} == {
        feature: ("several GPUs", tried_on(feature))
        for feature in ("sync=ddp", "precision=bf16", "overlap")
    }
    assert (tried_on("sync=ddp"), tried_on("overlap")) == ("one GPU", "CPU")
    alone = [one for one in candidates(on_gpus) if one.point.workers == 1]
    assert [row["feature"] for row in untried_in(on_gpus, alone) or ()] == ["overlap"]


def test_nodes_say_which_machine_it_is_where_the_sweep_leaves_it_open() -> None:
    sweep = Sweep(workload=Linear(), axes={"workers": [2]})
    points = candidates(sweep)
    assert untried_in(sweep, points) is None
    assert untried_in(sweep, points, [{"is_gpu": False}]) == []
    for nodes, wanted in [
        ([{"is_gpu": True}], "several GPUs"),
        ([{"is_gpu": False}, {"error": "gone"}], "cluster"),
    ]:
        assert {row["wanted"] for row in untried_in(sweep, points, nodes) or ()} == {wanted}


def test_plan_says_in_a_line_what_was_never_tried(tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(
        "from dtsweep import Resources, Sweep, workloads\n"
        'axes = {"workers": [1], "copy_ahead": [True], "fused": [True]}\n'
        "resources = Resources(gpus_per_worker=1)\n"
        "sweep = Sweep(workload=workloads.Gpt(), axes=axes, resources=resources)\n"
    )
    plan = ("plan", file, "--results", tmp_path / "r")
    assert in_one_line(*plan).endswith(
        "Never tried by us on such a machine: copy_ahead (one GPU; so far nowhere), fused (one "
        "GPU; so far CPU)."
    )
    assert [row["feature"] for row in as_json(*plan)["untried"]] == ["copy_ahead", "fused"]
    on_cpus = as_json(*plan[:1], ROOT / "sweeps/own_model.py", *plan[2:])
    assert on_cpus["untried"] is None
