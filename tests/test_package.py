"""A package with a mode, a compression and a workload, from its declaration to the frontier."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dtsweep
from dtsweep.results.store import Results
from tests.conftest import Command, without_ray
from tests.installed import PACKAGE, install
from tests.pages import ROOT
from tests.ranks import free_ports, torchrun_variables

SWEEP = """
from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Mlp(width=32, layers=1),
    axes={"workers": [WORKERS], "micro_batch": [4], "sync": SYNCS},
    resources=Resources(gpus_per_worker=0, cpus_per_worker=1),
    measure=Measure(
        repeats=1, canary=False, min_steps=20, min_seconds=0, max_seconds=5, half_width=None
    ),
)
"""


def path_with(*folders: Path) -> str:
    return os.pathsep.join(map(str, (ROOT, *folders)))


def sweep_in(folder: Path, *, workers: int = 1, syncs: tuple[str, ...] = ("ddp", "delayed")) -> str:
    text = SWEEP.replace("WORKERS", str(workers)).replace("SYNCS", str(list(syncs)))
    (folder / "tiny.py").write_text(text)
    return "tiny.py"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the package is installed."""
    return install(tmp_path_factory.mktemp("site"))


@pytest.fixture(scope="module")
def newer_site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which its next version is installed."""
    return install(tmp_path_factory.mktemp("newer"), version="0.2.0")


@pytest.fixture(scope="module")
def measured(
    tmp_path_factory: pytest.TempPathFactory, site: Path, dtsweep_command: Command
) -> Path:
    """Folder with results of a run in this process, without Ray."""
    folder = tmp_path_factory.mktemp("measured")
    file = sweep_in(folder)
    arguments = ("run", file, "--in-process", "--results", "results")
    done = dtsweep_command(*arguments, folder=folder, PYTHONPATH=path_with(site))
    assert done.returncode == 0, done.stderr
    return folder


def test_only_trials_that_use_a_package_have_its_version_and_all_can_be_compared(
    measured: Path,
) -> None:
    results = Results(str(measured / "results"))
    ranks = {row["attempt_id"]: row for row in results.table("ranks").to_pylist()}
    trials = results.table("trials").to_pylist()
    assert {row["status"] for row in trials} == {"ok"}
    packages = {row["sync"]: ranks[row["attempt_id"]]["mode_packages"] for row in trials}
    assert packages == {"ddp": None, "delayed": '{"dtsweep-delayed": "0.1.0"}'}
    versions = {
        row["sync"]: json.loads(row["sources"]).get("package dtsweep-delayed") for row in trials
    }
    assert versions == {"ddp": None, "delayed": "0.1.0"}
    # Results of two environments are never compared.
    assert len({row["env_id"] for row in trials}) == 1


def test_results_of_another_version_are_refused(
    measured: Path, newer_site: Path, dtsweep_command: Command
) -> None:
    path = path_with(newer_site)
    arguments = ("run", "tiny.py", "--in-process", "--results", "results")
    done = dtsweep_command(*arguments, folder=measured, PYTHONPATH=path)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "dtsweep: these results were measured before dtsweep-delayed 0.1.0 became 0.2.0; "
        "measure everything again with --rerun all, or keep both with another --results"
    )


def test_results_are_read_without_the_package(measured: Path, dtsweep_command: Command) -> None:
    done = dtsweep_command("report", "results", folder=measured, PYTHONPATH=str(ROOT))
    assert done.returncode == 0, done.stderr
    assert "stale · delayed" in done.stdout


def as_ranks(folder: Path, sites: list[Path], *words: str) -> list[tuple[int, str, str]]:
    """Exit code, output and messages of a rank for each site, as torchrun starts them."""
    (port,) = free_ports(1)
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "dtsweep.worker", "tiny.py", f"workers={len(sites)}", *words],
            cwd=folder,
            env=without_ray(
                PYTHONPATH=path_with(site),
                **torchrun_variables(rank, workers=len(sites), port=port),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, site in enumerate(sites)
    ]
    said = [process.communicate(timeout=120) for process in processes]
    return [(p.returncode, *texts) for p, texts in zip(processes, said, strict=True)]


def test_under_torchrun_a_mode_of_a_package_is_measured(tmp_path: Path, site: Path) -> None:
    sweep_in(tmp_path, workers=2)
    ranks = as_ranks(tmp_path, [site, site], "sync=delayed")
    assert [code for code, _, _ in ranks] == [0, 0], ranks
    row: dict[str, Any] = json.loads(ranks[0][1].splitlines()[-1])
    assert (row["status"], row["semantics"], row["global_batch"]) == ("ok", "stale", 8)
    assert row["gradients_agree"]
    assert row["parameters_agree"]


def test_under_torchrun_ranks_with_another_version_are_refused(
    tmp_path: Path, site: Path, newer_site: Path
) -> None:
    sweep_in(tmp_path, workers=2)
    for code, _, errors in as_ranks(tmp_path, [site, newer_site], "sync=delayed"):
        assert code == 2
        assert re.search(
            r"dtsweep: rank 1 on \S+: dtsweep-delayed 0\.2\.0, but 0\.1\.0 where dtsweep runs; "
            "install the same on all nodes",
            errors,
        )


@pytest.mark.ray
def test_a_whole_sweep_of_the_package_comes_to_its_frontier(
    tmp_path: Path, site: Path, dtsweep_command: Command
) -> None:
    file = sweep_in(tmp_path, workers=2)
    done = dtsweep_command(
        "run", file, "--address", "local", folder=tmp_path, PYTHONPATH=path_with(site)
    )
    assert done.returncode == 0, done.stderr
    assert "stale · delayed" in done.stdout
    trials = dtsweep.load(str(tmp_path / "results" / "tiny")).set_index("sync")
    assert trials["status"].to_dict() == {"ddp": "ok", "delayed": "ok"}
    assert trials.loc["delayed", "comm_method"] == "wait"
    assert trials["env_id"].nunique() == 1


@pytest.fixture(scope="module")
def mixed_cluster(site: Path, newer_site: Path) -> Iterator[str]:
    """A node like the driver, one with the next version, and one without the package."""
    from ray.cluster_utils import Cluster

    cluster = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 1,
            "include_dashboard": False,
            "env_vars": {"PYTHONPATH": path_with(site)},
        },
    )
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": path_with(newer_site)})
    cluster.add_node(num_cpus=1, env_vars={"PYTHONPATH": path_with()})
    yield cluster.address
    cluster.shutdown()


LACKING = r"\S+: dtsweep-delayed is not installed, but 0\.1\.0 where dtsweep runs; install the same"
NEWER = r"\S+: dtsweep-delayed 0\.2\.0, but 0\.1\.0 where dtsweep runs; install the same"


@pytest.mark.ray
def test_a_run_is_refused_where_a_node_lacks_the_package_or_has_another_version(
    mixed_cluster: str, tmp_path: Path, site: Path, dtsweep_command: Command
) -> None:
    file = sweep_in(tmp_path)
    arguments = ("run", file, "--address", mixed_cluster)
    done = dtsweep_command(*arguments, folder=tmp_path, PYTHONPATH=path_with(site))
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert re.search(f"nothing was started: ({LACKING}|{NEWER}) on all nodes .and 1 more", last)
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.ray
def test_the_doctor_shows_all_nodes_and_names_both(
    mixed_cluster: str, tmp_path: Path, site: Path, dtsweep_command: Command
) -> None:
    arguments = ("doctor", "--address", mixed_cluster)
    done = dtsweep_command(*arguments, folder=tmp_path, PYTHONPATH=path_with(site))
    assert done.returncode == 1, done.stderr
    assert "Matrix products" in done.stdout
    _, problems = " ".join(done.stdout.split()).split("Problems")
    assert re.search(LACKING, problems)
    assert re.search(NEWER, problems)


@pytest.mark.parametrize(
    "name",
    [
        "dtsweep_delayed/delayed.py",
        "dtsweep_delayed/declared.py",
        "pyproject.toml",
        "frontier.py",
    ],
)
def test_the_page_on_new_modes_has_the_files_as_they_are(name: str) -> None:
    page = (ROOT / "docs" / "new-mode.md").read_text("utf-8")
    text = (PACKAGE / name).read_text("utf-8")
    language = "toml" if name.endswith(".toml") else "python"
    assert f"`{name}`:\n\n```{language}\n{text}```\n" in page
