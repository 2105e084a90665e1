"""What tests share: the command as a user runs it, in a process of its own."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.request import Request, urlopen

import pytest
from hypothesis import settings

# A slow machine is not a failure, and another example in each run of CI would make it flaky.
settings.register_profile("dtsweep", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("dtsweep")

collect_ignore = ["loops/scripts"]
"""Scripts as users write them, which `dtsweep script` runs."""

Command = Callable[..., subprocess.CompletedProcess[str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what runs a part of the tests, for machines that have no time for all."""
    parser.addoption("--third", type=int, choices=(0, 1, 2), help="run a third of the files")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the files of one third, of those whose marks are asked for."""
    third = config.getoption("third")
    if third is None:
        return
    files = sorted({item.path for item in items})
    chosen = {*files[third::3]}
    config.hook.pytest_deselected(items=[item for item in items if item.path not in chosen])
    items[:] = [item for item in items if item.path in chosen]


def pytest_configure(config: pytest.Config) -> None:
    """Give torch one thread in each of several processes of tests: more wait for each other."""
    # What a shell starts in the background ignores Ctrl-C, and so would all processes of tests.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if hasattr(config, "workerinput"):
        import torch

        torch.set_num_threads(1)


def without_ray(**more: str) -> dict[str, str]:
    """The environment without what another Ray has left in it."""
    return {name: value for name, value in os.environ.items() if not name.startswith("RAY_")} | more


def pytest_collection_finish() -> None:
    """Leave modules and collected tests out of garbage collections: attempts make many of them."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Have Python take everything down at its end."""
    gc.unfreeze()


@pytest.fixture
def world_of_one() -> Iterator[None]:
    """Be the only rank of a world, in this process."""
    from tests.ranks import alone

    with alone():
        yield


@pytest.fixture(scope="session")
def ray_address() -> Iterator[str]:
    """A Ray of one node that commands share, each of which would start a private one otherwise."""
    from ray.cluster_utils import Cluster

    os.environ["RAY_worker_niceness"] = "0"  # noqa: SIM112  # Ray's own spelling
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False}
    )
    yield cluster.address
    cluster.shutdown()


@pytest.fixture(scope="session")
def dtsweep_command() -> Command:
    """Run `python -m dtsweep …` from a folder that is not the project's.

    No Ray but the one it is told.
    """

    def run(
        *arguments: object, folder: Path, timeout_s: float = 300, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "dtsweep", *map(str, arguments)],
            cwd=folder,
            env=without_ray(**environment),
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )

    return run


@pytest.fixture(scope="session")
def forked_command() -> Command:
    """Run `dtsweep …` as `dtsweep_command` does, in a process that has its imports already.

    For commands without Ray, where no claim is about how the process begins.
    """
    from tests.ranks import run_forked

    def run(
        *arguments: object,
        folder: Path,
        said: str = "",
        timeout_s: float = 120,
        **environment: str,
    ) -> subprocess.CompletedProcess[str]:
        return run_forked(
            [*map(str, arguments)],
            folder=folder,
            environment=without_ray(**environment),
            said=said,
            timeout_s=timeout_s,
        )

    return run


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A real server that speaks S3, and the address of an empty folder there."""
    import pyarrow.fs as pafs
    from moto.server import ThreadedMotoServer

    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    # Servers of one process share what they store.
    with urlopen(Request(f"http://{host}:{port}/moto-api/reset", method="POST")):
        pass
    files = pafs.S3FileSystem(endpoint_override=f"http://{host}:{port}", allow_bucket_creation=True)
    files.create_dir("bucket")
    yield f"s3://bucket/some/results?endpoint_override={host}:{port}&scheme=http"
    server.stop()
