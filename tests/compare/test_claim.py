"""A claim of a point: what it holds and gives away, and the verdict of a check."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dtsweep import SweepError
from dtsweep.compare.claim import Claim, make_claim
from dtsweep.compare.claim_check import (
    _JSON_FIELDS,
    DIFFERS,
    HOLDS,
    UNTOLD,
    judge,
    read_claim,
)
from dtsweep.results.store import Results
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.values import column_types
from dtsweep.workloads import Cifar10Cnn, Gpt, Script, Transformers
from tests.cli.called import called
from tests.compare.stored_runs import SWEEP, store_run
from tests.schemas import check_output, validator

RATES = {4: [100.0, 101.0, 99.0], 16: [50.0, 50.5, 49.5]}
FOUR = identity(Point(micro_batch=4, workload=SWEEP.workload))

HOST, USER, HOME, TOKEN = "gpu7.corp.example", "marysmith", "/home/marysmith/corpus", "abcd-efgh-ij"
"""What nobody else should read."""


def claim_in(folder: Path, rates: dict[int, Any] = RATES, **columns: Any) -> Claim:
    """A claim of the point with a micro_batch of 4, of made-up results."""
    if not folder.exists():
        store_run(folder, rates, **columns)
    return make_claim(Results(folder), FOUR)[0]


def written(claim: Claim, path: Path) -> str:
    path.write_text(json.dumps(claim))
    return str(path)


def test_a_claim_has_the_mean_its_launches_and_follows_its_schema(tmp_path: Path) -> None:
    claim = claim_in(tmp_path / "r", cpus_per_worker=2.0, gpus_per_worker=0.0, backend="gloo")
    check_output("claim", claim)
    assert not validator("claim").is_valid({**claim, "host": "a"})
    rate = claim["figures"]["samples_per_s"]
    assert rate["value"] == pytest.approx(100.0)
    assert rate["low"] < 100.0 < rate["high"]
    assert [launch["samples_per_s"] for launch in claim["launches"]] == [100.0, 101.0, 99.0]
    assert claim["settings"]["micro_batch"] == claim["settings"]["global_batch"] == 4
    assert claim["settings"]["workload.width"] == 8
    with pytest.raises(SweepError, match="are those of the claim"):
        judge(claim, claim, zone=0.1)
    assert claim["machines"][0]["cpus_per_worker"] == 2.0
    # Without --point it is the one with the highest rate.
    assert make_claim(Results(tmp_path / "r"), None)[0]["settings"]["micro_batch"] == 4


def test_a_claim_names_no_host_user_path_or_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", USER)
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    machine = {"cpu": "Xeon", "environment": {"NCCL_TOPO_FILE": f"{HOME}/topo.xml"}}
    folder = store_run(
        tmp_path / "r",
        RATES,
        machine=json.dumps(machine),
        ranks=[{"node": HOST}],
        workload_data=f"{HOME}/text?by={TOKEN}",
        environment=json.dumps({"MASTER": f"{HOST}:1", "PEER": "10.1.2.3", "RUN": f"{USER}-1"}),
        command=json.dumps([f"{HOME}/train.py", "--on", "gpu7", "--api-key", "s3cr3t-word"]),
    )
    claim, line = make_claim(Results(folder), FOUR)
    text = json.dumps(claim) + line
    for word in (HOST, "gpu7", USER, HOME, "/home", "10.1.2.3", TOKEN, "s3cr3t-word"):
        assert word not in text
    assert claim["settings"]["workload.data"] == "[hidden]"
    assert claim["machines"][0]["variables"]["RUN"] == "[hidden]-1"
    secret = claim_in(tmp_path / "s", workload_data="hf_abcdefghijklmnopqrstuvwxyz")
    assert secret["settings"]["workload.data"].startswith("hidden:")


def scaled(claim: Claim, factor: float, *, launches: int = 3) -> Claim:
    """The claim of a machine that is so many times as fast, by other launches."""
    rows = [
        {
            name: value * (factor if name.startswith("samples") else 1 / factor)
            for name, value in launch.items()
        }
        for launch in claim["launches"][:launches]
    ]
    return {**claim, "launches": rows, "attempts": [f"new {number}" for number in range(launches)]}


@pytest.mark.parametrize(
    ("factor", "verdict"),
    # ln 1.1 = 0.095; noise of two runs is ± 0.055, of launches ± 0.02: a difference of 0.03 holds,
    # of 0.08 is no practical one nor within the zone, of 0.22 is beyond both.
    [(1.0, HOLDS), (0.97, HOLDS), (0.92, UNTOLD), (0.8, DIFFERS), (0.5, DIFFERS), (1.3, DIFFERS)],
)
def test_a_claim_holds_within_the_zone_and_not_beyond(
    tmp_path: Path, factor: float, verdict: str
) -> None:
    claim = claim_in(tmp_path / "r")
    judged = judge(claim, scaled(claim, factor), zone=0.1)
    check_output("claim-check", judged)
    assert judged["verdict"] == verdict
    rate, latency = judged["rows"]
    assert rate["ratio"] == pytest.approx(factor)
    assert latency["ratio"] == pytest.approx(1 / factor)
    # Intervals have at least the noise of two runs that differ by 2 %.
    assert rate["ratio_high"] >= factor * math.exp(1.96 * 2**0.5 * 0.02)
    assert f"samples_per_s is {factor:.3f} times the claimed one (" in judged["words"]
    assert judged["is_open"] == (verdict == UNTOLD)
    assert judged["differences"] == []


def test_one_launch_on_each_side_tells_nothing_and_on_one_side_it_may(tmp_path: Path) -> None:
    claim = claim_in(tmp_path / "r", {4: [100.0]})
    judged = judge(claim, scaled(claim, 0.5, launches=1), zone=0.1)
    assert judged["verdict"] == UNTOLD
    assert "one launch each" in judged["words"]
    several = claim_in(tmp_path / "several")
    assert judge(claim, scaled(several, 0.5), zone=0.1)["verdict"] == DIFFERS
    # A drift of 30 % hides a difference of 20 % of one launch.
    drifted = {**claim, "noise": {**claim["noise"], "drift": 0.3}}
    assert judge(drifted, scaled(several, 0.8), zone=0.1)["verdict"] == UNTOLD


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model_digest": "b"}, "model b, claimed a"),
        ({"sources": {"class Gpt": "2", "new.py": "3"}}, "class Gpt differs"),
        ({"settings": {"workers": 2, "workload": "Gpt"}}, "workers 2, claimed 1"),
    ],
)
def test_another_job_is_no_check(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    claim = {**claim_in(tmp_path / "r"), "model_digest": "a", "sources": {"class Gpt": "1"}}
    judged = judge(claim, {**scaled(claim, 1.0), **change}, zone=0.1)
    assert judged["verdict"] == UNTOLD
    assert not judged["is_open"]
    assert said in judged["words"]


def test_facts_that_explain_most_come_first(tmp_path: Path) -> None:
    claim = claim_in(tmp_path / "r")
    then = {"torch_version": "2.13", "cpus_per_worker": 1.0, "network": ["eth0 100 Mb/s"]}
    then["gpu"] = {"power_limit_w": 700, "ecc": True}
    now = {"torch_version": "2.14", "cpus_per_worker": 2.0, "network": ["eth0 10 Mb/s"]}
    now["gpu"] = {"power_limit_w": 500, "ecc": True}
    claimed = {**claim, "machines": [then], "rates": {"matmul_flops_per_s": 2e9, "sm_clock_hz": 1}}
    rates = {"matmul_flops_per_s": 1e9, "sm_clock_hz": 1.05}
    measured = {**scaled(claim, 1.0), "machines": [now], "rates": rates}
    assert judge(claimed, measured, zone=0.1)["differences"] == [
        'network ["eth0 100 Mb/s"] → ["eth0 10 Mb/s"]',
        "gpu.power_limit_w 700 → 500",
        "matmul_flops_per_s 2e+09 → 1e+09",
        "cpus_per_worker 1.0 → 2.0",
        "torch 2.13 → 2.14",
    ]


BAD: dict[str, Callable[[Any], Any]] = {
    "not JSON": lambda claim: "{",
    "nested": lambda claim: "[" * 100_000,
    "huge": lambda claim: {**claim, "code": "x" * (1 << 20)},
    "a list": lambda claim: [claim],
    "another format": lambda claim: {**claim, "dtsweep_claim": 2},
    "no launches": lambda claim: {**claim, "launches": []},
    "a text for a rate": lambda claim: {**claim, "launches": [{"samples_per_s": "fast"}]},
    "settings as a text": lambda claim: {**claim, "settings": "workers=2"},
    "unknown measure": lambda claim: {**claim, "measure": {"minutes": 3}},
    "unknown field": lambda claim: {**claim, "settings": {"workload": "Gpt", "workload.x": 1}},
    "variables": lambda claim: {**claim, "machines": [{"variables": {"LD_PRELOAD": "evil.so"}}]},
    "own workload": lambda claim: {**claim, "settings": {"workload": "NextLetter"}},
    "no machines": lambda claim: {**claim, "machines": []},
}


@pytest.mark.parametrize("kind", BAD)
def test_what_is_no_claim_is_refused_in_one_line(tmp_path: Path, kind: str) -> None:
    bad = BAD[kind](claim_in(tmp_path / "r"))
    path = tmp_path / "claim.json"
    path.write_text(bad if isinstance(bad, str) else json.dumps(bad))
    with pytest.raises(SweepError) as error:
        read_claim(str(path), None)
    assert "\n" not in str(error.value)


def test_a_sweep_file_is_narrowed_to_the_claimed_point(tmp_path: Path) -> None:
    claim = claim_in(tmp_path / "r")
    file = tmp_path / "sweep.py"
    file.write_text(
        "from dtsweep import Sweep, workloads\n"
        "sweep = Sweep(workload=workloads.Gpt(layers=1), goal='throughput', axes={\n"
        "    'workers': [1, 2], 'micro_batch': [4, 8], 'global_batch': [64], 'sync': ['ring'],\n"
        "    'workload.width': [8, 16], 'env.NCCL_ALGO': ['Ring']})\n"
    )
    claim["machines"][0]["variables"] = {"NCCL_ALGO": "Tree"}
    _, sweep = read_claim(written(claim, tmp_path / "claim.json"), str(file))
    (one,) = candidates(sweep)
    point = Point(micro_batch=4, workload=SWEEP.workload, environment={"NCCL_ALGO": "Tree"})
    assert identity(one.point) == identity(point)
    assert sweep.measure.repeats == 1


def test_a_claimed_script_needs_the_script_alone(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    fields = {"workload": "Script", "workload.path": "train.py", "workload.arguments": '["-v"]'}
    settings = {**fields, "args.lr": 0.5, "workers": 2, "sync": "as_written", "placement": "pack"}
    claim = {**claim_in(tmp_path / "r"), "settings": settings}
    path = written(claim, tmp_path / "claim.json")
    (one,) = candidates(read_claim(path, str(tmp_path / "train.py"))[1])
    assert (one.point.workers, one.point.args) == (2, {"lr": 0.5})
    assert one.point.workload.arguments == ("-v",)
    with pytest.raises(SweepError, match="give its script"):
        read_claim(path, None)


def test_every_field_that_is_stored_as_json_is_read_as_json() -> None:
    (own, script) = ([Gpt(), Cifar10Cnn(), Transformers("bert-base")], Script(__file__))
    kinds = [item for one in (*own, script) for item in column_types(one).items()]
    assert {name for name, kind in kinds if kind is dict} == {*_JSON_FIELDS}


@pytest.mark.slow
def test_a_check_in_this_process_is_refused_since_one_launch_each_tells_nothing(
    tmp_path: Path,
) -> None:
    (tmp_path / "tiny.py").write_text(
        "from dtsweep import Measure, Sweep, workloads\n"
        "measure = Measure(repeats=1, min_seconds=0, half_width=None)\n"
        "sweep = Sweep(workload=workloads.Gpt(layers=1, width=8), measure=measure,\n"
        "              axes={'micro_batch': [2]})\n"
    )
    made, new, path = (str(tmp_path / name) for name in ("made", "new", "claim.json"))
    assert called("run", tmp_path / "tiny.py", "--in-process", "--results", made).exit_code == 0
    done = called("claim", made, "--to", path)
    assert "1 launch, 95 % · claim.json`" in done.stderr
    with pytest.raises(SweepError, match="needs several to be checked"):
        called("claim", "check", path, "--in-process", "--results", new)
    with pytest.raises(SweepError, match="must be from 6%"):
        called("claim", "check", path, "--indifference", "3%")
