"""The documents of KubeRay, by its own schemas and by Ray's autoscaler."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import dtsweep
from tests.cluster_files.crd import faults_of
from tests.cluster_files.written import CPUS, GPUS, sweep_text, text_of, written
from tests.conftest import Command

RESULTS = ("--results", "s3://bucket/study")

PRODUCT = list(
    itertools.product(
        ("RayJob", "RayCluster"),
        ((), *(("--spot", "--provider", cloud) for cloud in ("aws", "gcp", "azure"))),
        ((), ("--queue", "team")),
        ((), ("--instance", "p4d.24xlarge", "--image", "registry/image:1", "--idle-minutes", "1")),
    )
)


def documents(command: Command, folder: Path, *options: object) -> list[Mapping[str, Any]]:
    return written(command, folder, "--to", "kuberay", *RESULTS, *options)


def node_types(spec: Mapping[str, Any]) -> Any:
    """Node types as the autoscaler in Ray's image reads them from a cluster."""
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr,
    )

    resource = {"metadata": {"namespace": "default", "name": "study"}, "spec": spec}
    return _derive_autoscaling_config_from_ray_cr(resource)["available_node_types"]


def cluster_spec(document: Mapping[str, Any]) -> Mapping[str, Any]:
    spec: Mapping[str, Any] = document["spec"]
    if document["kind"] == "RayJob":
        spec = spec["rayClusterSpec"]
    return spec


@pytest.mark.parametrize(("resources", "every"), [(GPUS, 1), (CPUS, 3)])
def test_kubernetes_takes_the_documents_with_all_options_and_drops_nothing(
    resources: str, every: int, tmp_path: Path, forked_command: Command
) -> None:
    more = ", environment={'NCCL_DEBUG': 'WARN', 'HF_TOKEN': 'hf_' 'abcdefgh'}"
    (tmp_path / "study.py").write_text(sweep_text(workers=[1, 16], resources=resources, more=more))
    for kind, spot, queue, others in PRODUCT[::every]:
        config_map, document = documents(
            forked_command, tmp_path, "--kind", kind, *spot, *queue, *others
        )
        assert faults_of(document) == []
        assert (config_map["kind"], document["kind"]) == ("ConfigMap", kind)
        spec = cluster_spec(document)
        types = node_types(spec)
        worker = types["worker"]
        assert types["headgroup"]["resources"]["CPU"] == 0
        assert (worker["min_workers"], worker["max_workers"]) == (0, 2 if resources is GPUS else 4)
        assert worker["resources"].get("GPU") == (8 if resources is GPUS else None)
        assert worker["labels"]["ray.io/market-type"] == ("spot" if spot else "on-demand")
        group = spec["workerGroupSpecs"][0]["template"]["spec"]
        assert ("spot" in str(group["nodeSelector"]).lower()) if spot else True
        has_queue = "kueue.x-k8s.io/queue-name" in document["metadata"].get("labels", {})
        assert has_queue == bool(queue)
        assert shared_memory(group) == ("/dev/shm", "Memory")


def shared_memory(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Path and medium of a pod's shared memory."""
    (mount,) = [one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "shm"]
    (volume,) = [one for one in pod["volumes"] if one["name"] == "shm"]
    return mount["mountPath"], volume["emptyDir"]["medium"]


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        (("shutdownAfterJobFinish",), True, ".spec.shutdownAfterJobFinish: unknown"),
        (("backoffLimit",), "0", ".spec.backoffLimit: '0' is no integer"),
        (
            ("rayClusterSpec", "autoscalerOptions", "version"),
            "v3",
            ".spec.rayClusterSpec.autoscalerOptions.version: 'v3' is not one of ['v1', 'v2']",
        ),
        (
            ("rayClusterSpec", "workerGroupSpecs", 0, "template", "spec", "volumes", 0, "empty"),
            {},
            ".spec.rayClusterSpec.workerGroupSpecs[0].template.spec.volumes[0].empty: unknown",
        ),
    ],
)
def test_the_check_finds_what_kubernetes_would_refuse_or_drop(
    place: tuple[Any, ...], value: Any, fault: str, tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    _, job = documents(forked_command, tmp_path)
    part: Any = job["spec"]
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    assert faults_of(job) == [fault]


def test_the_check_finds_what_is_missing(tmp_path: Path, forked_command: Command) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    _, job = documents(forked_command, tmp_path)
    del job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["groupName"]
    assert faults_of(job) == [".spec.rayClusterSpec.workerGroupSpecs[0].groupName: missing"]


def test_the_job_runs_the_sweep_with_the_words_that_were_given(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "sweeps").mkdir()
    text = sweep_text(workers=[1]) + "# ünïcode \\ 'quotes' # \t\n"
    (tmp_path / "sweeps" / "study.py").write_text(text)
    results = "s3://b/r?region=x&scheme=http"
    given = ["--where", "workers<=2 and step_p99_s < $HOME", "--max-hours", "2"]
    config_map, job = written(
        forked_command,
        tmp_path,
        *("--to", "kuberay", "--results", results, "--set", "workers=1,2", "--", *given),
        name="sweeps/study.py",
    )
    # The files as the head's pod has them.
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    for mount in head["containers"][0]["volumeMounts"]:
        if mount["name"] == "sweep":
            file = tmp_path / mount["mountPath"].removeprefix("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(config_map["data"][mount["subPath"]])
    project = tmp_path / "home" / "ray" / "project"
    assert (project / "sweeps" / "study.py").read_text() == text
    # The entrypoint on a machine with these folders, and a `python` that says what it was given.
    (project / "python").write_text('#!/bin/sh\npwd\nprintf "%s\\n" "$@"\n')
    (project / "python").chmod(0o755)
    script = job["spec"]["entrypoint"].replace("/home", f"{tmp_path}/home").split()
    run = Path(script[1])
    run.write_text(run.read_text().replace("/home", f"{tmp_path}/home"))
    environment = os.environ | {"PATH": f"{project}:{os.environ['PATH']}"}
    done = subprocess.run(
        script, env=environment, capture_output=True, text=True, timeout=30, check=True
    )
    assert done.stdout.splitlines() == [
        str(project),
        *("-m", "dtsweep", "run", "sweeps/study.py", "--address", "auto", "--results", results),
        *("--set", "workers=1,2", "--node-timeout", "1800"),
        *given,
    ]


def test_files_that_options_name_are_in_the_config_map(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    (tmp_path / "limits").mkdir()
    # A condition is the only text of a run; a file may have its name.
    (tmp_path / "limits" / "workers").write_text("made up\n")
    config_map, job = documents(forked_command, tmp_path, "--", "--where", "limits/workers")
    assert list(config_map["data"]) == ["run.sh", "workers", "study.py"]
    assert config_map["data"]["workers"] == "made up\n"
    head = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    mounts = {
        mount.get("subPath"): mount["mountPath"] for mount in head["containers"][0]["volumeMounts"]
    }
    assert mounts["workers"] == "/home/ray/project/limits/workers"


def test_a_sweep_with_modules_of_its_own_is_in_the_image(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "sweeps" / "nets").mkdir(parents=True)
    (tmp_path / "sweeps" / "nets" / "__init__.py").write_text("WIDTH = 16\n")
    (tmp_path / "sweeps" / "layers.py").write_text("LAYERS = 1\n")
    text = "from nets import WIDTH\nfrom layers import LAYERS\n" + sweep_text(workers=[1])
    (tmp_path / "sweeps" / "study.py").write_text(text)
    options = ("--to", "kuberay", *RESULTS)
    config_map, job = written(forked_command, tmp_path, *options, name="sweeps/study.py")
    assert list(config_map["data"]) == ["run.sh"]
    assert "dtsweep run sweeps/study.py" in config_map["data"]["run.sh"]
    assert faults_of(job) == []
    image = text_of(forked_command, tmp_path, *options, "--dockerfile", name="sweeps/study.py")
    copied = [line.split()[2:] for line in image.splitlines() if "/project/" in line]
    assert copied == [
        [path, f"/home/ray/project/{path}"]
        for path in ("sweeps/study.py", "sweeps/layers.py", "sweeps/nets")
    ]


def test_a_script_is_in_the_image_and_found_from_the_same_folder(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "train.py").write_text("import torch\n")
    (tmp_path / "sweeps").mkdir()
    (tmp_path / "sweeps" / "study.py").write_text(
        "from dtsweep import Resources, Sweep, workloads\n"
        "sweep = Sweep(workload=workloads.Script('train.py'), axes={'workers': [2]},\n"
        "    resources=Resources(gpus_per_worker=0))\n"
    )
    image = text_of(
        forked_command, tmp_path, "--to", "kuberay", "--dockerfile", name="sweeps/study.py"
    )
    copied = [line.split()[2] for line in image.splitlines() if "/project/" in line]
    assert copied == ["sweeps/study.py", "train.py"]


def test_the_image_has_the_versions_that_are_installed_here(
    tmp_path: Path, forked_command: Command
) -> None:
    source = Path(dtsweep.__file__).parents[1]
    (tmp_path / "study.py").write_text(sweep_text(workers=[1], resources=GPUS))
    image = text_of(forked_command, tmp_path, "--to", "kuberay", "--dockerfile")
    python = "".join(map(str, sys.version_info[:2]))
    assert f"\nFROM rayproject/ray:{version('ray')}-py{python}-gpu\n" in image
    for name in ("torch", "pyarrow", "numpy"):
        assert f'"{name}=={version(name).partition("+")[0]}"' in image
    copied = [line.split()[3] for line in image.splitlines() if "--from=dtsweep" in line]
    assert copied and all((source / name).exists() for name in copied)
    assert f"--build-context dtsweep={source}" in image


def test_secrets_come_from_a_secret_of_kubernetes(tmp_path: Path, forked_command: Command) -> None:
    hidden = ", environment={'NCCL_DEBUG': 'WARN', 'HF_TOKEN': 'hf_' 'abcdefgh'}"
    (tmp_path / "study.py").write_text(sweep_text(workers=[1], more=hidden))
    _, job = documents(forked_command, tmp_path)
    spec = job["spec"]["rayClusterSpec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        plain, secret = group["template"]["spec"]["containers"][0]["env"]
        assert plain == {"name": "NCCL_DEBUG", "value": "WARN"}
        reference = secret["valueFrom"]["secretKeyRef"]
        assert reference == {"name": "study-secrets", "key": "HF_TOKEN"}
    (tmp_path / "study.py").write_text(
        sweep_text(workers=[1], more=", environment={'HF_TOKEN': 'hf_abcdefgh'}")
    )
    done = forked_command("cluster", "study.py", "--to", "kuberay", *RESULTS, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "hf_abcdefgh" not in done.stderr
    assert "read it there from os.environ['HF_TOKEN']" in done.stderr


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ((), "--to kuberay needs --results, a URI such as s3://bucket/folder"),
        (("--results", "here"), "--results here is a folder of a pod, which goes with it; give a"),
        (("--results", "s3://key:secret@b/r"), "--results has credentials, which would stand"),
        ((*RESULTS, "--spot"), "--spot needs --provider: each cloud's Kubernetes marks its spot"),
        ((*RESULTS, "--provider", "aws"), "--provider is needed for --spot alone"),
        ((*RESULTS, "--region", "x"), "--region is of --to ray"),
        ((*RESULTS, "--gpus-per-node", "8"), "--gpus-per-node 8, but the sweep has Resources("),
        (
            (*RESULTS, "--set", "env.MY_KEY=a"),
            "--set: the name of axis 'env.MY_KEY' marks a secret",
        ),
        ((*RESULTS, "--", "--max-hour", "2"), "dtsweep run would refuse what stands after --: No"),
        ((*RESULTS, "--", "--max-hours", "x"), "dtsweep run would refuse what stands after --: In"),
        ((*RESULTS, "--", "--max-cost", "3"), "--max-cost needs the prices of nodes: add --prices"),
        ((*RESULTS, "--queue", "My team"), "--queue 'My team' is not a name of Kubernetes: lower-"),
        ((*RESULTS, "--", "--results", "x"), "--results can't stand after --; give it in front"),
        ((*RESULTS, "--", "--address", "x"), "--address can't stand after --; the run uses the"),
    ],
)
def test_what_can_not_be_meant_is_refused_in_a_line(
    options: tuple[str, ...], line: str, tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    done = forked_command("cluster", "study.py", "--to", "kuberay", *options, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    (said,) = done.stderr.splitlines()
    assert said.startswith(f"dtsweep: {line}")


@pytest.mark.parametrize(
    ("resources", "options", "line"),
    [
        ("", ("--to", "kuberay", *RESULTS), "KubeRay's autoscaler does not say which nodes it can"),
        (CPUS, ("--to", "ray", "--queue", "q"), "--queue is of Kueue, which --to kuberay uses"),
        (CPUS, ("--to", "ray", "--kind", "RayCluster"), "--kind is of KubeRay; leave it out"),
        (CPUS, ("--to", "ray", "--cpus-per-node", "8"), "--cpus-per-node 8 needs --instance, a"),
        (GPUS, ("--to", "ray", "--instance", "t"), "--instance t needs --cpus-per-node, and"),
        (GPUS, ("--to", "ray", "--gpus-per-node", "0"), "--gpus-per-node 0, but the sweep has"),
    ],
)
def test_resources_have_to_agree_with_the_options(
    resources: str, options: tuple[str, ...], line: str, tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1], resources=resources))
    done = forked_command("cluster", "study.py", *options, folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"dtsweep: {line}")
