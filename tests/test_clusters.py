"""The example files of clusters, by Ray's checks and KubeRay's schemas."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from dtsweep.cli.measure import run_command
from dtsweep.plan.needed_nodes import nodes_json
from dtsweep.sweep.file import read_sweep
from tests.pages import ROOT

FOLDER = ROOT / "clusters"
(RAY,) = re.findall(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text("utf-8"), re.MULTILINE)


SCHEMAS = {"RayJob": "ray.io_rayjobs.yaml", "RayCluster": "ray.io_rayclusters.yaml"}
"""KubeRay's own, as Kubernetes checks documents against them."""

TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
METADATA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "labels": TEXTS, "annotations": TEXTS},
    "additionalProperties": False,
}
"""What a document's own metadata may have here; the schemas leave them open."""


def closed(schema: Any) -> Any:
    """Refuse each field that a schema does not have; Kubernetes would drop it and say nothing."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    parts = {name: closed(part) for name, part in schema.items()}
    if schema.get("type") == "object" and "x-kubernetes-preserve-unknown-fields" not in schema:
        parts.setdefault("additionalProperties", False)
    return parts


@cache
def validator_of(kind: str) -> Draft202012Validator:
    """Validator of a kind of documents, of the version that is stored."""
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "kuberay"
    if not folder.is_dir():
        pytest.skip("DTSWEEP_TEST_DATA names no folder with kuberay")
    # In C: the schemas have 20,000 lines.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load((folder / SCHEMAS[kind]).read_text("utf-8"), Loader=loader)
    (stored,) = [version for version in crd["spec"]["versions"] if version["storage"]]
    schema = closed(stored["schema"]["openAPIV3Schema"])
    schema["properties"]["metadata"] = METADATA
    return Draft202012Validator(schema)


def faults_of(document: Mapping[str, Any]) -> list[str]:
    """Faults of a document, each with its place."""
    errors = validator_of(document["kind"]).iter_errors(document)
    return [f"{error.json_path}: {error.message}" for error in errors]


def text_of(name: str) -> str:
    return (FOLDER / f"{name}.yaml").read_text("utf-8")


def job(text: str) -> Any:
    _, document = yaml.safe_load_all(text)
    return document


def with_queue(text: str) -> str:
    """The job's text without the `#` in front of the lines for Kueue."""
    head, between, tail = text.partition("  # For a queue of Kueue (kueue.yaml):\n")
    lines, end, tail = tail.partition("spec:\n")
    return head + between + re.sub("^  # ", "  ", lines, flags=re.MULTILINE) + end + tail


@pytest.mark.parametrize("name", ["aws", "gcp"])
def test_ray_takes_the_file(name: str) -> None:
    from ray.autoscaler._private.util import prepare_config, validate_config

    filled = prepare_config(yaml.safe_load(text_of(name)))
    validate_config(filled)
    worker = filled["available_node_types"]["worker"]
    head = filled["available_node_types"][filled["head_node_type"]]
    assert filled["provider"]["type"] == name
    assert (head["resources"], head["max_workers"]) == ({"CPU": 0, "GPU": 0}, 0)
    assert filled["max_workers"] == worker["max_workers"] > 0 == worker["min_workers"]
    is_spot = "preemptible" in str(worker["node_config"])
    assert worker["labels"]["ray.io/market-type"] == ("spot" if is_spot else "on-demand")
    assert filled["docker"]["image"].startswith(f"rayproject/ray:{RAY}-")
    assert filled["docker"]["image"].endswith("-gpu") == ("GPU" in worker["resources"])
    commands = [*filled["head_start_ray_commands"], *filled["worker_start_ray_commands"]]
    started = [line for line in commands if "ray start" in line]
    assert len(started) == 2
    assert all("RAY_AUTH_MODE=token" in line for line in started)
    # Half of the shared memory is for Ray's object store.
    (shared,) = filled["docker"]["worker_run_options"]
    size = int(shared.removeprefix("--shm-size=").removesuffix("g")) * 2**30
    assert started[1].endswith(f"--object-store-memory={size // 2}")


@pytest.mark.parametrize("text", [text_of("kuberay"), with_queue(text_of("kuberay"))])
def test_kubernetes_takes_the_job_and_drops_nothing(text: str) -> None:
    assert faults_of(job(text)) == []


@pytest.mark.parametrize(
    ("place", "value", "fault"),
    [
        (("shutdownAfterJobFinish",), True, "$.spec: {} ('shutdownAfterJobFinish' was unexpected)"),
        (("backoffLimit",), "0", "$.spec.backoffLimit: '0' is not of type 'integer'"),
        (
            ("rayClusterSpec", "workerGroupSpecs", 0, "template", "spec", "volumes", 0, "empty"),
            {},
            "$.spec.rayClusterSpec.workerGroupSpecs[0].template.spec.volumes[0]: {} "
            "('empty' was unexpected)",
        ),
    ],
)
def test_the_check_finds_what_kubernetes_would_refuse_or_drop(
    place: tuple[Any, ...], value: Any, fault: str
) -> None:
    document = job(text_of("kuberay"))
    part = document["spec"]
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    assert faults_of(document) == [fault.format("Additional properties are not allowed")]


def test_rays_autoscaler_reads_node_types_that_hold_the_sweep_of_the_job(tmp_path: Path) -> None:
    from ray.autoscaler._private.kuberay.autoscaling_config import (
        _derive_autoscaling_config_from_ray_cr,
    )

    config_map, document = yaml.safe_load_all(text_of("kuberay"))
    spec = document["spec"]["rayClusterSpec"]
    assert spec["rayVersion"] == RAY
    resource = {"metadata": {"namespace": "default", "name": "train"}, "spec": spec}
    types = _derive_autoscaling_config_from_ray_cr(resource)["available_node_types"]
    assert types["headgroup"]["resources"]["CPU"] == 0
    worker = types["worker"]
    assert worker["resources"]["GPU"] == 8
    (tmp_path / "sweep.py").write_text(config_map["data"]["sweep.py"])
    sweep, found = read_sweep(tmp_path / "sweep.py")
    nodes = nodes_json(sweep, found)["nodes"]
    (needed,) = [row for row in nodes["by_workers_per_node"] if row["workers_per_node"] == 8]
    assert (worker["min_workers"], worker["max_workers"]) == (0, needed["at_once"])


def test_pods_mount_the_files_that_the_job_runs() -> None:
    config_map, document = yaml.safe_load_all(text_of("kuberay"))
    head = document["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
    mounts = {
        mount["subPath"]: mount["mountPath"]
        for mount in head["containers"][0]["volumeMounts"]
        if mount["name"] == "sweep"
    }
    assert mounts == {name: f"/home/ray/project/{name}" for name in config_map["data"]}
    assert document["spec"]["entrypoint"] == f"bash {mounts['run.sh']}"


@pytest.mark.parametrize("name", ["aws", "gcp", "kuberay"])
def test_dtsweep_run_takes_the_options_of_the_file(name: str, tmp_path: Path) -> None:
    (line,) = re.findall(r"cd /home/ray/project && (?:exec )?([^'\n]*)", text_of(name))
    words = shlex.split(line)
    assert words[:4] == ["python", "-m", "dtsweep", "run"]
    with run_command.make_context("run", words[4:]) as context:
        assert context.params["results"].startswith(("s3://", "gs://"))
        assert (context.params["address"], context.params["node_timeout_s"]) == ("auto", 1800)


def test_a_job_with_the_label_waits_in_the_queue_that_covers_what_its_pods_request() -> None:
    *flavors, cluster_queue, local_queue = yaml.safe_load_all(text_of("kueue"))
    metadata = job(with_queue(text_of("kuberay")))["metadata"]
    assert metadata["labels"]["kueue.x-k8s.io/queue-name"] == local_queue["metadata"]["name"]
    assert metadata["annotations"] == {"kueue.x-k8s.io/elastic-job": "true"}
    assert local_queue["spec"]["clusterQueue"] == cluster_queue["metadata"]["name"]
    (group,) = cluster_queue["spec"]["resourceGroups"]
    named = {flavor["metadata"]["name"] for flavor in flavors}
    assert {flavor["name"] for flavor in group["flavors"]} == named
    spec = job(text_of("kuberay"))["spec"]["rayClusterSpec"]
    (workers,) = spec["workerGroupSpecs"]
    (container,) = workers["template"]["spec"]["containers"]
    requests = container["resources"]["requests"]
    assert set(requests) == set(group["coveredResources"])
    (with_gpus,) = [flavor for flavor in group["flavors"] if flavor["name"] == "gpu-nodes"]
    quota = {resource["name"]: resource["nominalQuota"] for resource in with_gpus["resources"]}
    assert quota["nvidia.com/gpu"] == workers["maxReplicas"] * int(requests["nvidia.com/gpu"])
    assert quota["cpu"] == workers["maxReplicas"] * int(requests["cpu"])
