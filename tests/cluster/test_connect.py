"""Connections to a Ray: addresses, tokens, jobs, and the user's own modules that go there."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import psutil
import pytest
import ray

from dtsweep.cluster import token
from dtsweep.cluster.connect import connected
from dtsweep.cluster.shipping import own_modules, shipped_modules
from dtsweep.driver.run import refuse_what_ray_deletes
from dtsweep.errors import SweepError
from dtsweep.sweep.file import read_sweep
from tests.conftest import Command, without_ray
from tests.pages import ROOT, commands
from tests.ranks import free_ports

SWEEP = """
from dataclasses import dataclass

from dtsweep import Measure, Resources, Sweep
from afar import net

@dataclass(frozen=True)
class Small:
    def build(self):
        import package.inside
        return net()

    def batch(self, samples, device):
        import torch
        return torch.ones(len(samples), 2)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Small(),
    axes={"workers": [1]},
    measure=Measure(repeats=1, half_width=None, canary=False, min_seconds=0, min_steps=5),
    resources=Resources(cpus_per_worker=1),
)
"""

NET = "from torch import nn\n\ndef net():\n    return nn.Linear(2, 1)\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep file, and modules that it imports from another folder."""
    (tmp_path / "sweep.py").write_text(SWEEP)
    (tmp_path / "elsewhere" / "package").mkdir(parents=True)
    (tmp_path / "elsewhere" / "afar.py").write_text(NET)
    (tmp_path / "elsewhere" / "package" / "inside.py").write_text("")
    return tmp_path


def test_own_modules_travel_from_wherever_they_are_imported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(folder / "elsewhere")
    sweep, _ = read_sweep(folder / "sweep.py")
    modules = own_modules(sweep)
    assert modules == [folder / "elsewhere" / "afar.py", folder / "elsewhere" / "package"]
    own = [str(ROOT / "dtsweep"), *map(str, modules)]
    assert shipped_modules(None, modules) == own
    # What is imported from another folder goes before what has its name beside the sweep file.
    (folder / "afar.py").write_text("")
    beside = [str(folder / "afar.py"), str(folder / "sweep.py")]
    assert shipped_modules(folder, modules) == [*own, *beside]


@pytest.mark.parametrize(
    ("address", "variable", "said"),
    [
        ("[::1]:1", "", "no Ray at '[::1]:1' (Connection refused); start one"),
        ("::1:6379", "", "address '::1:6379' is not HOST:PORT; use that ([::1]:6379 in IPv6)"),
        ("head", "", "address 'head' is not HOST:PORT"),
        ("ray://head:10001", "", "'ray://head:10001': that is for Ray Client"),
        ("auto", "http://head:8265", "RAY_ADDRESS is 'http://head:8265': that is its dashboard's"),
        (None, "127.0.0.1:1", "no Ray at '127.0.0.1:1' (Connection refused)"),
    ],
)
def test_an_address_that_can_t_be_joined_is_a_line(
    address: str | None, variable: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", variable)
    before = dict(os.environ)
    with pytest.raises(SweepError) as raised, connected(address, folder=None):
        raise AssertionError
    assert str(raised.value).startswith(said)
    assert dict(os.environ) == before


def test_what_accepts_and_never_answers_is_no_ray(monkeypatch: pytest.MonkeyPatch) -> None:
    # As patient as Ray can be told to be least; else it is 20 s.
    monkeypatch.setattr(token, "_ANSWER_S", 1)
    monkeypatch.setenv("RAY_gcs_rpc_server_connect_timeout_s", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        refused = pytest.raises(SweepError, match=f"no Ray at '{address}' .*; start one")
        with refused, connected(address, folder=None):
            raise AssertionError


def test_a_handler_of_sigterm_that_python_did_not_set_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(signal, "getsignal", lambda _: None)  # as in Python inside another program
    with pytest.raises(SweepError, match="no Ray at"), connected("127.0.0.1:1", folder=None):
        raise AssertionError


@pytest.mark.slow
def test_results_are_refused_where_ray_keeps_the_code_of_a_job_for_a_while(
    folder: Path, dtsweep_command: Command
) -> None:
    of_job = folder / "session" / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    of_job.mkdir(parents=True)
    path = f"{ROOT}:{folder / 'elsewhere'}"
    done = dtsweep_command("run", folder / "sweep.py", folder=of_job, PYTHONPATH=path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "give --results an absolute path or a URI" in done.stderr
    assert [path.name for path in of_job.iterdir()] == []


def test_a_folder_that_ray_deletes_is_no_place_for_results(tmp_path: Path) -> None:
    of_job = tmp_path / "session" / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    for results in (of_job, of_job / "r", f"file://{of_job}/r"):
        with pytest.raises(SweepError, match="copy of its code, which Ray deletes; give --res"):
            refuse_what_ray_deletes(str(results))
    for results in (tmp_path, f"file://{tmp_path}/r", f"s3://bucket/{of_job}"):
        refuse_what_ray_deletes(str(results))


class Head(NamedTuple):
    """A head node that was started by `ray start`, with the home folder that it has."""

    address: str
    home: str
    dashboard: str


def with_python(home: Path | str, **more: str) -> dict[str, str]:
    """The environment of a user with this test's `python` and `ray`, but without dtsweep."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = without_ray(HOME=str(home), PATH=path, **more)
    environment.pop("PYTHONPATH", None)
    return environment


HAS_DASHBOARD = find_spec("aiohttp_cors") is not None
"""True if Ray is installed as `ray[default]`."""

RAY = str(Path(sys.executable).with_name("ray"))


@contextmanager
def started(home: Path, *, has_dashboard: bool) -> Iterator[Head]:
    port, dashboard, agent, client = free_ports(4)
    options = ["--include-dashboard=false"]
    if has_dashboard:
        options = [f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}"]
    options += [f"--port={port}", f"--ray-client-server-port={client}", f"--temp-dir={home / 't'}"]
    process = subprocess.Popen(
        [RAY, "start", "--head", "--block", "--num-cpus=1", "--disable-usage-stats", *options],
        env=with_python(home),
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert any("runtime started" in line for line in process.stdout)
        yield Head(f"127.0.0.1:{port}", str(home), f"http://127.0.0.1:{dashboard}")
    finally:
        head = psutil.Process(process.pid)
        processes = [head, *head.children(recursive=True)]
        process.terminate()
        for left in psutil.wait_procs(processes, timeout=3)[1]:
            left.kill()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def heads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Head, Head]]:
    """Two heads that run: without a token, and with one, as whoever has used Ray before gets it."""
    bare, known = (Path(tmp_path_factory.mktemp(name)) for name in ("b", "k"))
    (known / ".ray").mkdir()
    (known / ".ray" / "auth_token").write_text("a" * 64)
    second = started(known, has_dashboard=HAS_DASHBOARD)
    with started(bare, has_dashboard=False) as first, second as other:
        yield first, other


JOINS = """
import json, os, sys
from pathlib import Path
import ray
from dtsweep.cluster.connect import connected
from dtsweep.errors import SweepError

@ray.remote(num_cpus=0)
def seen(boxed):  # a worker asks the driver for what is small
    import net
    there = Path(net.__file__).parent
    assert "py_modules_files" in there.parts, f"{there} did not travel"
    files = sorted(path.name for path in there.rglob("*") if path.suffix != ".pyc")
    return files, ray.get(boxed[0])

def joined(address, **variables):
    before = dict(os.environ)
    os.environ.update(variables)
    ray.__version__ = variables.get("VERSION", ray.__version__)
    try:
        with connected(address, folder=Path(sys.argv[1])) as cluster:
            if address == "local":
                return "joined"
            there, joined = ray.get(seen.remote([ray.put("joined")]), timeout=60)
            return f"{joined} with {there}; {cluster.notes}"
    except SweepError as error:
        return str(error)
    finally:
        os.environ.clear()
        os.environ.update(before)

private, *wanted = json.load(sys.stdin)
print(json.dumps([joined(address, **variables) for address, variables in [private, *wanted]]))
"""


@pytest.mark.ray
def test_a_cluster_is_joined_with_its_token_or_without_after_a_private_ray_too(
    heads: tuple[Head, Head], tmp_path: Path
) -> None:
    (bare, no_token, _), (known, its_token, _) = heads
    for name in ("net/__init__.py", "net/.env", "net/sub/.env.local", "net/.git/config", ".env"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("PASSWORD=hunter2")
    (tmp_path / "net" / "__init__.py").write_text("")
    files = "joined with ['__init__.py']; "
    version = ray.__version__
    cases = [
        ("local", {"HOME": its_token}, "joined"),
        (known, {"HOME": its_token}, files),
        (bare, {"HOME": its_token}, files),
        (bare.replace("127.0.0.1", "[::1]"), {"HOME": no_token}, files),
        ("auto", {"HOME": its_token, "RAY_ADDRESS": known}, files),
        (known, {"HOME": no_token}, "there is none; copy ~/.ray/auth_token of"),
        (known, {"RAY_AUTH_TOKEN": "b" * 64}, "this machine's is another; copy"),
        (known, {"HOME": its_token, "RAY_AUTH_MODE": "disabled"}, "=disabled keeps it back"),
        # The head's own versions, though it may have no CPUs; last, as this one stays.
        (bare, {"VERSION": "2.1.0"}, f"mismatch: The cluster was started with: Ray: {version} "),
    ]
    asked = json.dumps([(address, variables) for address, variables, _ in cases])
    done = subprocess.run(
        [sys.executable, "-c", JOINS, tmp_path],
        cwd=no_token,  # workers find what lies in the driver's
        env=without_ray(HOME=no_token, PYTHONPATH=str(ROOT)),
        input=asked,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for (address, _, expected), said in zip(cases, json.loads(done.stdout), strict=True):
        assert expected in said
        if said.startswith("joined with"):
            is_open = "asks for no token: anybody who reaches it can run code there" in said
            assert is_open == (address.rpartition(":")[2] == bare.rpartition(":")[2])
    assert "Ray: 2.1.0 Python: " in json.loads(done.stdout)[-1]
    # Refusals of tokens are answers: Ray's lines about them tell the user nothing.
    assert "InvalidAuthToken" not in done.stderr


@pytest.mark.ray
@pytest.mark.skipif(
    not HAS_DASHBOARD, reason="ray[default] is not installed, whose dashboard takes jobs"
)
def test_a_job_runs_as_the_docs_say_with_the_modules_that_it_brings(
    heads: tuple[Head, Head], tmp_path: Path
) -> None:
    (tmp_path / "sweeps").mkdir()
    # A name that no reader of the source finds: only the job's own list of modules brings it.
    by_name = 'import importlib; importlib.import_module("hid" + "den")'
    sweep = SWEEP.replace("import package.inside", by_name)
    sweep = sweep.replace("from afar import net", "from beside import net")
    (tmp_path / "sweeps" / "batchsize.py").write_text(sweep)
    (tmp_path / "sweeps" / "beside.py").write_text(NET)
    (tmp_path / "hidden").mkdir()
    (tmp_path / "hidden" / "__init__.py").write_text("")
    (tmp_path / "dtsweep").symlink_to(ROOT / "dtsweep")
    line = next(line for line in commands() if line.startswith("ray job submit"))
    line = line.replace('["dtsweep"]', '["dtsweep", "hidden"]')
    line = line.replace("/data/batchsize", str(tmp_path / "r"))
    # The head of this test listens on another port.
    line = line.replace("--address http://127.0.0.1:8265 ", "")
    options, entrypoint = line.split(" -- ")
    # Without --results it is refused; with it, it is the page's.
    both = f"{entrypoint.partition(' --results')[0]}; {entrypoint}"
    done = subprocess.run(
        [RAY, *shlex.split(options)[1:], "--", "sh", "-c", both],
        cwd=tmp_path,
        env=with_python(heads[1].home, RAY_ADDRESS=heads[1].dashboard, RAY_AUTH_MODE="token"),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/results/batchsize' would lie in this Ray job's copy of its code" in done.stdout
    trials = pd.read_parquet(tmp_path / "r" / "trials")
    assert trials["status"].tolist() == ["ok"], done.stdout
