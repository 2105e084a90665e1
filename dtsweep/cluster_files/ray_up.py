"""The file of `ray up`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from dtsweep.cluster_files.asked import DEFAULTS
from dtsweep.cluster_files.describe import PROJECT, Described
from dtsweep.cluster_files.yaml_text import Noted, yaml_text, yours
from dtsweep.report.code import in_shell
from dtsweep.text import count_of

TOKEN = "/home/ray/.ray/auth_token"  # noqa: S105  # a path
SOURCE = "/home/ray/dtsweep"

# A slash in front is the top of the folder: dtsweep itself has a folder `results`.
NOT_SENT = ("**/.git", "**/.venv", "**/.env", "**/.env.*", "/results", "**/__pycache__")

DISK_GB = 200
HEAD_SHM_GIB = 4

IMAGES = {
    "gcp": "projects/deeplearning-platform-release/global/images/family/"
    "common-cu129-ubuntu-2404-nvidia-580",
}
"""Images of machines, with NVIDIA's driver and Docker, where Ray has no default."""

Document = dict[str, Any]


def ray_up_text(described: Described) -> str:
    """Text of a file for `ray up`.

    Raises:
        SweepError: a file of the sweep is not in the working directory.
    """
    return yaml_text(_configuration(described), head=_head_lines(described))


def _head_lines(described: Described) -> list[str]:
    demand, node = described.demand, described.machine.node
    path = described.files.in_project()[0]
    lines = [
        f"Cluster of the sweep {path}, for `ray up` of Ray {described.packages.ray}.",
        f"Its largest world needs {count_of(demand.of_largest, 'node')} of {node}.",
        "Lines marked `yours:` depend on your account.",
        "In the folder where this was written:",
        "",
        "  ray get-auth-token --generate  # once, if there is no ~/.ray/auth_token",
        "  ray up FILE.yaml",
        f"  ray exec FILE.yaml {in_shell(f'cd {PROJECT} && {described.command}')}",
        "  ray down FILE.yaml",
        "",
        "The head costs until `ray down`; workers go when they are idle.",
    ]
    results = described.asked.results
    if results is None or "://" not in results:
        lines.append("Results lie on the head, and go with it: --results takes a URI.")
    lines += [
        f"yours: {name} is secret: put `export {name}=…` before the command of exec."
        for name in described.secrets
    ]
    return lines


def _configuration(described: Described) -> Document:
    asked = described.asked
    provider = asked.provider or "aws"
    head = head_type(provider)
    return {
        "cluster_name": described.name,
        "max_workers": described.max_nodes,
        "idle_timeout_minutes": _whole(asked.idle_minutes),
        "upscaling_speed": Noted(1000, "All nodes of a world at once."),
        "provider": _provider(described, provider),
        "auth": _auth(provider),
        "docker": _docker(described),
        "available_node_types": {
            head: Noted(
                {
                    "node_config": _machine(described, provider, is_head=True),
                    "resources": {"CPU": 0, "GPU": 0},
                    "labels": {"ray.io/market-type": "on-demand"},
                    "min_workers": 0,
                    "max_workers": 0,
                },
                "The head holds no workers.",
            ),
            "worker": {
                "node_config": _machine(described, provider, is_head=False),
                "resources": _resources(described),
                "labels": {"ray.io/market-type": described.market},
                "min_workers": 0,
                "max_workers": Noted(described.max_nodes, "As many as the sweep can use at once."),
            },
        },
        "head_node_type": head,
        "file_mounts": _mounts(described),
        "rsync_exclude": list(NOT_SENT),
        "setup_commands": _setup(described),
        "head_start_ray_commands": ["ray stop", _start(is_head=True, shm_gib=HEAD_SHM_GIB)],
        "worker_start_ray_commands": [
            "ray stop",
            _start(is_head=False, shm_gib=described.shm_gib),
        ],
    }


def head_type(provider: str) -> str:
    """Name of the head's type; GCP takes no dots.

    >>> head_type("aws")
    'ray.head.default'
    """
    if provider == "gcp":
        return "ray_head_default"
    return "ray.head.default"


def _resources(described: Described) -> Document:
    node = described.machine.node
    resources = {"CPU": node.cpus}
    if node.gpus:
        resources["GPU"] = node.gpus
    return resources


def _whole(number: float) -> float:
    """The number, as an integer if it is one."""
    if number == int(number):
        return int(number)
    return number


def _provider(described: Described, provider: str) -> Document:
    region = described.asked.region or DEFAULTS[provider].region
    quota = "where you have a quota for these machines."
    if provider == "aws":
        return {
            "type": "aws",
            "region": yours(region, quota),
            "cache_stopped_nodes": Noted(
                value=False, comment="Terminate nodes: stopped ones keep their disks."
            ),
        }
    if provider == "gcp":
        return {
            "type": "gcp",
            "region": yours(region, quota),
            "availability_zone": yours(f"{region}-a", "a zone that has these machines."),
            "project_id": yours("my-project", "the project's id."),
        }
    return {
        "type": "azure",
        "location": yours(region, quota),
        "resource_group": yours(described.name, "a resource group; it is made if there is none."),
        "cache_stopped_nodes": Noted(
            value=False, comment="Delete nodes: stopped ones keep their disks."
        ),
    }


def _auth(provider: str) -> Document:
    if provider != "azure":
        return {"ssh_user": "ubuntu"}
    return {
        "ssh_user": "ubuntu",
        "ssh_private_key": yours("~/.ssh/id_rsa", "your pair of keys."),
        "ssh_public_key": "~/.ssh/id_rsa.pub",
    }


def _docker(described: Described) -> Document:
    variables = [
        f"--env {shlex.quote(f'{name}={value}')}" for name, value in described.variables.items()
    ]
    base = f"{described.packages.base_image}-{'gpu' if described.has_gpus else 'cpu'}"
    image: Any = base
    if described.asked.image is not None:
        image = yours(described.asked.image, "an image that the nodes can pull.")
    return {
        "image": image,
        "container_name": "ray",
        "run_options": ["--ulimit nofile=65536:65536", *variables],
        "head_run_options": [f"--shm-size={HEAD_SHM_GIB}g"],
        "worker_run_options": [
            Noted(
                f"--shm-size={described.shm_gib}g",
                "For loaders of data, NCCL, gloo and Ray's object store.",
            )
        ],
    }


def _machine(described: Described, provider: str, *, is_head: bool) -> Document:
    """Configuration of a machine, in the form of its provider."""
    spot = described.asked.spot and not is_head
    has_gpus = described.has_gpus and not is_head
    instance = described.machine.instance
    if is_head:
        instance = DEFAULTS[provider].head
    if provider == "aws":
        return _aws(instance, spot=spot)
    if provider == "gcp":
        return _gcp(instance, spot=spot, has_gpus=has_gpus)
    return _azure(instance, spot=spot)


def _aws(instance: str, *, spot: bool) -> Document:
    config: Document = {
        "InstanceType": instance,
        "BlockDeviceMappings": [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": DISK_GB}}],
    }
    if spot:
        config["InstanceMarketOptions"] = {"MarketType": "spot"}
    return config


def _gcp(instance: str, *, spot: bool, has_gpus: bool) -> Document:
    disk = {
        "diskSizeGb": DISK_GB,
        "sourceImage": yours(IMAGES["gcp"], "an image with Docker, and NVIDIA's driver for GPUs."),
    }
    config: Document = {
        "machineType": instance,
        "disks": [
            {"boot": True, "autoDelete": True, "type": "PERSISTENT", "initializeParams": disk}
        ],
    }
    scheduling: list[Document] = []
    if spot:
        scheduling.append({"preemptible": True})
    if has_gpus:
        scheduling.append({"onHostMaintenance": "TERMINATE"})
    if scheduling:
        config["scheduling"] = scheduling
    return config


def _azure(instance: str, *, spot: bool) -> Document:
    parameters: Document = {
        "vmSize": instance,
        "imagePublisher": yours("microsoft-dsvm", "an image with Docker, and NVIDIA's driver."),
        "imageOffer": "ubuntu-2204",
        "imageSku": "2204-gen2",
        "imageVersion": "latest",
    }
    if spot:
        parameters["priority"] = "Spot"
    return {"azure_arm_parameters": parameters}


def _mounts(described: Described) -> Document:
    source = described.packages.source
    mounts: Document = {
        PROJECT: Noted(".", "The folder where this was written."),
        TOKEN: Noted("~/.ray/auth_token", "Nobody without it can run code on the cluster."),
    }
    if described.asked.image is None and source is not None and not _is_here(source):
        mounts[SOURCE] = str(source)
    return mounts


def _is_here(source: Path) -> bool:
    """True if dtsweep's source is in the folder that the nodes get in any case."""
    return source == Path.cwd().resolve()


def _setup(described: Described) -> Any:
    packages = described.packages
    if described.asked.image is not None:
        return Noted([], "The image has all packages.")
    pins = [*packages.pins]
    if packages.source is None:
        pins.append(f"dtsweep=={packages.dtsweep}")
    commands = [f"pip install {' '.join(map(shlex.quote, pins))}"]
    if packages.source is not None:
        folder = PROJECT if _is_here(packages.source) else SOURCE
        commands.append(f"pip install --no-deps {folder}")
    return Noted(commands, "The versions where this was written; a run refuses others.")


def _start(*, is_head: bool, shm_gib: int) -> str:
    memory = shm_gib * 2**30 // 2
    start = "ulimit -n 65536; RAY_AUTH_MODE=token ray start"
    common = f"--object-manager-port=8076 --object-store-memory={memory}"
    if is_head:
        config = "--autoscaling-config=~/ray_bootstrap_config.yaml"
        return f"{start} --head --port=6379 --num-cpus=0 --num-gpus=0 {config} {common}"
    return f"{start} --address=$RAY_HEAD_IP:6379 {common}"
