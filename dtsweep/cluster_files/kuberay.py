"""The documents of KubeRay: a RayJob, or a RayCluster, and the sweep file in a ConfigMap."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dtsweep.cluster_files.demand import Node
from dtsweep.cluster_files.describe import PROJECT, Described
from dtsweep.cluster_files.dockerfile import image_name
from dtsweep.cluster_files.files import texts_without_secrets
from dtsweep.cluster_files.yaml_text import Noted, yaml_text, yours
from dtsweep.errors import SweepError
from dtsweep.text import count_of

HEAD = Node(cpus=4, gpus=0)
"""Resources of the head's pod, which holds no workers."""

GIB_PER_CPU = 4
"""Memory of a pod for each of its CPUs, if not changed."""

KEPT_S = 60
"""Time for which the cluster stays after the job, so that its log is read to the end."""

SPOT_NODES: Mapping[str, tuple[str, str]] = {
    "aws": ("eks.amazonaws.com/capacityType", "SPOT"),
    "gcp": ("cloud.google.com/gke-spot", "true"),
    "azure": ("kubernetes.azure.com/scalesetpriority", "spot"),
}
"""Labels of spot nodes in the Kubernetes of each cloud."""

TAINTED = ("gcp", "azure")
"""Clouds whose spot nodes may be tainted with their label."""

RUN = "run.sh"
"""File of the ConfigMap with the command."""

Document = dict[str, Any]


def kuberay_text(described: Described, *, environment: Mapping[str, str]) -> str:
    """Text of a file for `kubectl apply`.

    Args:
        described: the cluster.
        environment: of the sweep's `Resources`, whose secrets must not be in the file.

    Raises:
        SweepError: the sweep file has a secret in it, or there is no place for results.
    """
    if described.asked.results is None:
        raise SweepError("--to kuberay needs --results, a URI such as s3://bucket/folder")
    documents = [yaml_text(_config_map(described, environment))]
    if described.asked.kind == "RayJob":
        documents.append(yaml_text(_ray_job(described)))
    else:
        documents.append(yaml_text(_ray_cluster(described)))
    head = "\n".join(f"# {line}".rstrip() for line in _head_lines(described))
    return head + "\n" + "---\n".join(documents)


def _head_lines(described: Described) -> list[str]:
    demand, node = described.demand, described.machine.node
    lines = [
        f"{described.asked.kind} of the sweep {described.files.sweep.name}, for KubeRay 1.6 or "
        "newer.",
        f"Its largest world needs {count_of(demand.of_largest, 'node')} of {node}.",
        "Lines marked `yours:` depend on your cluster and account.",
        "",
    ]
    if not described.files.is_single:
        lines.insert(2, "The image has the sweep file, too: build it again when that changes.")
    if described.asked.kind == "RayJob":
        return [
            *lines,
            "  kubectl create -f FILE.yaml",
            f"  kubectl logs -f -l job-name={described.name}",
            "",
            "When the job ends, the cluster goes. To continue the results: kubectl delete -f",
            "FILE.yaml, then create it again.",
        ]
    labels = f"ray.io/cluster={described.name},ray.io/node-type=head"
    return [
        *lines,
        "  kubectl apply -f FILE.yaml",
        f"  kubectl exec -it $(kubectl get pod -o name -l {labels}) -- bash {PROJECT}/{RUN}",
        "",
        "It stays until: kubectl delete -f FILE.yaml",
    ]


def _config_map(described: Described, environment: Mapping[str, str]) -> Document:
    texts = texts_without_secrets(described.files, environment)
    run = f"cd {PROJECT} && exec {described.command}\n"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": described.name},
        "data": {
            # As a file: an entrypoint is read by three shells in a row.
            RUN: run,
            **{Path(path).name: text for path, text in texts.items()},
        },
    }


def _metadata(described: Described) -> Document:
    metadata: Document = {"name": described.name}
    if described.asked.queue is not None:
        metadata["labels"] = {"kueue.x-k8s.io/queue-name": described.asked.queue}
        metadata["annotations"] = {
            "kueue.x-k8s.io/elastic-job": Noted(
                "true",
                "Kueue admits a cluster that grows only with this, from version 0.18 on, or with "
                "its\nfeature gate ElasticJobsViaWorkloadSlices. Kueue itself sets `suspend`.",
            )
        }
    return metadata


def _ray_job(described: Described) -> Document:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": _metadata(described),
        "spec": {
            "entrypoint": Noted(f"bash {PROJECT}/{RUN}", "The command is in the ConfigMap."),
            "submissionMode": "K8sJobMode",
            "backoffLimit": Noted(
                0,
                "1 would begin again on a new cluster if the head is lost, but also where trials "
                "failed\nor --max-hours is over.",
            ),
            "shutdownAfterJobFinishes": True,
            "ttlSecondsAfterFinished": KEPT_S,
            "rayClusterSpec": _cluster_spec(described),
        },
    }


def _ray_cluster(described: Described) -> Document:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": _metadata(described),
        "spec": _cluster_spec(described),
    }


def _cluster_spec(described: Described) -> Document:
    return {
        "rayVersion": described.packages.ray,
        "enableInTreeAutoscaling": True,
        "autoscalerOptions": {
            "version": Noted("v2", "It says why nodes don't come."),
            "idleTimeoutSeconds": round(described.asked.idle_minutes * 60),
        },
        "authOptions": Noted(
            {"mode": "token"},
            "KubeRay makes a Secret with a token, and gives it to all pods.",
        ),
        "headGroupSpec": _head_group(described),
        "workerGroupSpecs": [_worker_group(described)],
    }


def _head_group(described: Described) -> Document:
    container = _container(described, HEAD, name="ray-head", shm_gib=HEAD.cpus)
    # Single files, not the folder: Kubernetes would put folders of its own next to them.
    container["volumeMounts"] += [
        {"name": "sweep", "mountPath": f"{PROJECT}/{path}", "subPath": Path(path).name}
        for path in (RUN, *described.files.for_config_map())
    ]
    volumes = [
        _shared_memory(HEAD.cpus),
        {"name": "sweep", "configMap": {"name": described.name}},
    ]
    rights = (
        f"only the head writes to {described.asked.results}. Give it a serviceAccountName\n"
        "that may do so (on EKS, GKE and AKS bound to a role of the cloud)."
    )
    pod: Document = {
        "restartPolicy": "Never",
        "containers": yours([container], rights),
        "volumes": volumes,
    }
    return {
        "labels": {"ray.io/market-type": "on-demand"},
        "rayStartParams": {
            "num-cpus": "0",
            "num-gpus": "0",
            "object-store-memory": _object_store(HEAD.cpus),
        },
        "template": {"spec": pod},
    }


def _worker_group(described: Described) -> Document:
    node = described.machine.node
    asked = described.asked
    pod: Document = {
        "restartPolicy": "Never",
        "containers": [
            _container(described, node, name="ray-worker", shm_gib=described.shm_gib),
        ],
        "volumes": [_shared_memory(described.shm_gib)],
    }
    selector: Document = {}
    if described.machine.instance:
        selector["node.kubernetes.io/instance-type"] = described.machine.instance
    tolerations = []
    if node.gpus:
        tolerations.append({"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"})
    if asked.spot and asked.provider is not None:
        label, value = SPOT_NODES[asked.provider]
        selector[label] = value
        if asked.provider in TAINTED:
            spot = {"key": label, "operator": "Equal", "value": value, "effect": "NoSchedule"}
            tolerations.append(spot)
    if selector:
        pod["nodeSelector"] = selector
    if tolerations:
        pod["tolerations"] = tolerations
    return {
        "groupName": "worker",
        "replicas": 0,
        "minReplicas": 0,
        "maxReplicas": Noted(described.max_nodes, "As many as the sweep can use at once."),
        "labels": {"ray.io/market-type": described.market},
        "rayStartParams": {"object-store-memory": _object_store(described.shm_gib)},
        "template": {"spec": pod},
    }


def _container(described: Described, node: Node, *, name: str, shm_gib: int) -> Document:
    memory = max(GIB_PER_CPU * node.cpus, 2 * shm_gib)
    resources = {"cpu": str(node.cpus), "memory": f"{memory}Gi"}
    if node.gpus:
        resources["nvidia.com/gpu"] = str(node.gpus)
    container: Document = {
        "name": name,
        "image": yours(
            image_name(described),
            "the image of dtsweep cluster … --dockerfile, with your registry in front.",
        ),
        "resources": yours(
            {"requests": dict(resources), "limits": dict(resources)},
            "a pod has to fit on a node next to what Kubernetes keeps for itself.",
        ),
    }
    environment = _environment(described)
    if environment:
        container["env"] = environment
    container["volumeMounts"] = [{"name": "shm", "mountPath": "/dev/shm"}]  # noqa: S108
    return container


def _environment(described: Described) -> list[Any]:
    variables: list[Any] = [
        {"name": name, "value": value} for name, value in described.variables.items()
    ]
    secret = f"{described.name}-secrets"
    for name in described.secrets:
        reference = {"secretKeyRef": {"name": secret, "key": name}}
        comment = f"kubectl create secret generic {secret} --from-literal={name}=…"
        variables.append(yours({"name": name, "valueFrom": reference}, comment))
    return variables


def _shared_memory(gib: int) -> Document:
    return {
        "name": "shm",
        "emptyDir": Noted(
            {"medium": "Memory", "sizeLimit": f"{gib}Gi"},
            "It counts as the pod's memory. Without it there are 64 MiB.",
        ),
    }


def _object_store(shm_gib: int) -> str:
    """Half of the shared memory in bytes; the rest is for loaders of data and NCCL."""
    return str(shm_gib * 2**30 // 2)
