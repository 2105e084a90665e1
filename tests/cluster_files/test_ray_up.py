"""The file of `ray up`, by Ray's own checks."""

from __future__ import annotations

import itertools
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest
import yaml

import dtsweep
from tests.cluster_files.written import CPUS, GPUS, sweep_text, text_of, written
from tests.conftest import Command

PRODUCT = list(
    itertools.product(
        ("aws", "gcp", "azure"),
        ((), ("--spot",)),
        ((), ("--image", "registry/image:1"), ("--region", "here", "--idle-minutes", "0.5")),
        (
            (GPUS, ()),
            (CPUS, ("--max-nodes", "1")),
            (GPUS, ("--instance", "t", "--cpus-per-node", "8", "--gpus-per-node", "4")),
        ),
    )
)


def prepared(config: Any) -> Any:
    """A configuration as `ray up` fills it out, after Ray's own checks."""
    from ray.autoscaler._private.util import prepare_config, validate_config

    filled = prepare_config(config)
    validate_config(filled)
    return filled


@pytest.mark.parametrize("provider", ["aws", "gcp", "azure"])
def test_ray_takes_the_file_with_all_options(
    provider: str, tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "gpus.py").write_text(sweep_text(workers=[1, 16], resources=GPUS))
    (tmp_path / "cpus.py").write_text(sweep_text(workers=[1, 16], resources=CPUS))
    for cloud, spot, more, (resources, node) in PRODUCT:
        if cloud != provider:
            continue
        name = "gpus.py" if resources is GPUS else "cpus.py"
        options = ("--to", "ray", "--provider", provider, *spot, *more, *node)
        (config,) = written(forked_command, tmp_path, *options, name=name)
        filled = prepared(config)
        worker = filled["available_node_types"]["worker"]
        head = filled["available_node_types"][filled["head_node_type"]]
        assert filled["provider"]["type"] == provider
        assert (head["resources"], head["max_workers"]) == ({"CPU": 0, "GPU": 0}, 0)
        assert ("GPU" in worker["resources"]) == (resources is GPUS)
        assert filled["max_workers"] == worker["max_workers"] > 0 == worker["min_workers"]
        assert worker["labels"]["ray.io/market-type"] == ("spot" if spot else "on-demand")
        assert ("pot" in str(worker["node_config"]) or "preempt" in str(worker)) == bool(spot)
        assert "pot" not in str(head["node_config"])
        assert any("--shm-size" in option for option in filled["docker"]["worker_run_options"])
        assert all("RAY_AUTH_MODE=token ray start" in line for line in started(filled))
        assert (filled["setup_commands"] == []) == ("--image" in more)


def started(config: Any) -> list[str]:
    return [
        line
        for key in ("head_start_ray_commands", "worker_start_ray_commands")
        for line in config[key]
        if "ray start" in line
    ]


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """A real server that speaks EC2 and IAM, with the network that each account has."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    url = f"http://{host}:{port}"
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "key")
    monkeypatch.setenv("AWS_ENDPOINT_URL", url)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    with urlopen(Request(f"{url}/moto-api/reset", method="POST")):
        pass
    yield
    server.stop()


def test_a_cloud_takes_the_machines_of_the_file(
    cloud: None, tmp_path: Path, forked_command: Command
) -> None:
    from ray.autoscaler._private.aws import config as aws
    from ray.autoscaler._private.aws.node_provider import AWSNodeProvider

    (tmp_path / "study.py").write_text(sweep_text(workers=[16], resources=GPUS))
    (config,) = written(forked_command, tmp_path, "--to", "ray", "--spot")
    # A profile of the user's own: after making one, Ray sleeps for half a minute.
    head = config["available_node_types"][config["head_node_type"]]
    head["node_config"]["IamInstanceProfile"] = {"Arn": "arn:aws:iam::1:instance-profile/own"}
    filled = aws.bootstrap_aws(prepared(config))
    # What EC2 knows of the machines agrees with what the file says.
    filled = AWSNodeProvider.fillout_available_node_types_resources(filled)
    worker = filled["available_node_types"]["worker"]
    assert {name: worker["resources"][name] for name in ("CPU", "GPU")} == {"CPU": 96, "GPU": 8}
    provider = AWSNodeProvider(filled["provider"], filled["cluster_name"])
    tags = {"ray-node-type": "worker", "ray-node-name": "w", "ray-launch-config": "x"}
    provider.create_node(worker["node_config"] | {"ImageId": "ami-12c6146b"}, tags, 1)
    (machine,) = provider.ec2.instances.all()
    assert (machine.instance_type, machine.instance_lifecycle) == ("p4d.24xlarge", "spot")


def test_the_largest_world_the_slots_and_a_limit_give_the_number_of_nodes(
    tmp_path: Path, forked_command: Command
) -> None:
    def nodes(*options: object, **sweep: Any) -> int:
        (tmp_path / "study.py").write_text(sweep_text(**sweep))
        (config,) = written(forked_command, tmp_path, "--to", "ray", *options)
        assert config["max_workers"] == config["available_node_types"]["worker"]["max_workers"]
        number: int = config["max_workers"]
        return number

    assert nodes(workers=[1, 16], resources=GPUS) == 2
    assert nodes(workers=[1, 3], placement="strict_spread", resources=GPUS) == 3
    assert nodes(workers=[8, 16], resources=GPUS, more=", concurrent=2") == 4
    assert nodes("--max-nodes", 3, workers=[8, 16], resources=GPUS, more=", concurrent=2") == 3
    assert nodes("--set", "workers=1,24", workers=[1], resources=GPUS) == 3


def test_what_the_limit_costs_is_said(tmp_path: Path, forked_command: Command) -> None:
    (tmp_path / "study.py").write_text(
        sweep_text(workers=[16], resources=GPUS, more=", concurrent=2")
    )
    few = forked_command("cluster", "study.py", "--to", "ray", "--max-nodes", 1, folder=tmp_path)
    assert few.returncode == 0
    assert "needs 2 nodes of 96 CPUs and 8 GPUs; with --max-nodes 1 its trials can't" in few.stderr
    some = forked_command("cluster", "study.py", "--to", "ray", "--max-nodes", 2, folder=tmp_path)
    assert "could use 4 nodes at once; with --max-nodes 2 sessions wait" in some.stderr


def test_what_goes_to_the_nodes_leaves_no_part_of_dtsweep_out(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    (config,) = written(forked_command, tmp_path, "--to", "ray")
    source = Path(dtsweep.__file__).parents[1]
    assert config["file_mounts"] == {
        "/home/ray/project": ".",
        "/home/ray/.ray/auth_token": "~/.ray/auth_token",
        "/home/ray/dtsweep": str(source),
    }
    everywhere = {
        pattern.removeprefix("**/")
        for pattern in config["rsync_exclude"]
        if pattern.startswith("**/")
    }
    at_top = {
        pattern.removeprefix("/")
        for pattern in config["rsync_exclude"]
        if not pattern.startswith("**/")
    }
    parts = {part for file in source.glob("dtsweep/**/*.py") for part in file.parts}
    assert not everywhere & parts
    assert not at_top & {path.name for path in source.glob("dtsweep")}
    assert f"ray[default,train,tune]=={version('ray')}" in config["setup_commands"][0]
    assert config["setup_commands"][1] == "pip install --no-deps /home/ray/dtsweep"


def test_the_command_of_the_file_reaches_dtsweep_as_it_was_given(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    given = ["--max-hours", "2", "--where", "workers<=2 and step_p99_s < 1"]
    results = "s3://b/r?region=x&scheme=http"
    text = text_of(forked_command, tmp_path, "--to", "ray", "--results", results, "--", *given)
    (line,) = [line for line in text.splitlines() if line.startswith("#   ray exec")]
    # As the shell of the user reads it, and then the head's.
    *_, on_head = shlex.split(line.removeprefix("#"))
    in_folder, _, command = on_head.partition(" && ")
    assert in_folder == "cd /home/ray/project"
    words = shlex.split(command)
    assert words[:5] == ["python", "-m", "dtsweep", "run", "study.py"]
    assert words[5:] == [
        *("--address", "auto", "--results", results, "--node-timeout", "1800"),
        *given,
    ]


def test_secrets_are_named_and_not_written(tmp_path: Path, forked_command: Command) -> None:
    more = ", environment={'NCCL_DEBUG': 'WARN it', 'HF_TOKEN': 'hf_abcdefgh'}"
    (tmp_path / "study.py").write_text(sweep_text(workers=[1], more=more))
    text = text_of(forked_command, tmp_path, "--to", "ray")
    assert "hf_abcdefgh" not in text
    assert "# yours: HF_TOKEN is secret: put `export HF_TOKEN=…`" in text
    assert "--env 'NCCL_DEBUG=WARN it'" in yaml.safe_load(text)["docker"]["run_options"]


def test_a_file_is_written_once(tmp_path: Path, forked_command: Command) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    options = ("cluster", "study.py", "--to", "ray", "-o", "cluster.yaml")
    first = forked_command(*options, folder=tmp_path)
    assert (first.returncode, first.stdout) == (0, ""), first.stderr
    kept = (tmp_path / "cluster.yaml").read_text()
    again = forked_command(*options, "--spot", folder=tmp_path)
    assert again.returncode == 2
    assert "there is a file 'cluster.yaml'; give -o another name" in again.stderr
    assert (tmp_path / "cluster.yaml").read_text() == kept


def test_neither_ray_nor_torch_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "study.py").write_text(sweep_text(workers=[1]))
    script = (
        "import sys; sys.argv[1:] = ['cluster', 'study.py', '--to', 'ray']\n"
        "import atexit\n"
        "atexit.register(lambda: print('#', {'ray', 'torch', 'pandas'} & set(sys.modules)))\n"
        "from dtsweep.cli import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=os.environ,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "# set()"
