"""What a script reads in its environment, as `torchrun` sets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from torch import distributed

from dtsweep.worker.world import torchrun_variables, without_group
from tests.ranks import spawn

SHOW = """
import json, os
names = {*os.environ} - {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
print(json.dumps(sorted(n for n in names if n.startswith(("TORCH", "ROLE", "GROUP", "MASTER")))))
"""


def test_one_worker_without_a_group_makes_a_group_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "outer")
    monkeypatch.delenv("RANK", raising=False)
    with without_group("alone") as store:
        assert store is None
        assert (os.environ["RANK"], os.environ["WORLD_SIZE"]) == ("0", "1")
        assert (os.environ["LOCAL_RANK"], os.environ["TORCHELASTIC_RUN_ID"]) == ("0", "none")
        distributed.init_process_group("gloo")
        assert distributed.get_world_size() == 1
        distributed.destroy_process_group()
    assert os.environ["TORCHELASTIC_RUN_ID"] == "outer"
    assert "RANK" not in os.environ


@pytest.mark.slow
def test_torchrun_sets_no_variable_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "show.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    of_torchrun = json.loads(done.stdout.splitlines()[-1])
    assert "MASTER_PORT" in of_torchrun
    assert not {*of_torchrun} - {*os.environ} - {*torchrun_variables(None, rank=0, workers=1)}


def test_local_ranks_are_those_of_the_process_and_no_outer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outer = {"RANK": 1, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "NODE_RANK": 0, "LOCAL_WORLD_SIZE": 2}
    for name, value in outer.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("GROUP_RANK", raising=False)
    # The same rank of the same world.
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    store.set("place", '["10.0.0.1", 29500, 2]')
    seen = torchrun_variables(store, rank=1, workers=4)
    assert (seen["LOCAL_RANK"], seen["LOCAL_WORLD_SIZE"]) == ("1", "2")
    assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("10.0.0.1", "29500")
    assert (seen["GROUP_RANK"], seen["GROUP_WORLD_SIZE"]) == ("0", "2")
    # Another one.
    assert torchrun_variables(None, rank=0, workers=1)["LOCAL_WORLD_SIZE"] == "1"


def fail_on(rank: int, folder: Path, failing: tuple[int, ...]) -> None:
    """Ranks fail, or work until the other one has ended; note whether they have a group again."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/session", rank=rank, world_size=2
    )
    other = folder / f"{1 - rank}.said"
    until = time.monotonic() + 60
    with suppress(ValueError), without_group("script"):
        if rank in failing:
            raise ValueError("mine")
        while not other.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
    (folder / f"{rank}.said").write_text(str(distributed.is_initialized()))
    if distributed.is_initialized():
        distributed.destroy_process_group()


def said(folder: Path) -> list[str]:
    return [(folder / f"{rank}.said").read_text() for rank in range(2)]


def test_a_rank_that_fails_alone_does_not_wait_for_the_others(tmp_path: Path) -> None:
    spawn(fail_on, args=(tmp_path, (1,)), nprocs=2)
    assert said(tmp_path) == ["False", "False"]


def test_ranks_that_all_fail_have_their_group_again(tmp_path: Path) -> None:
    spawn(fail_on, args=(tmp_path, (0, 1)), nprocs=2)
    assert said(tmp_path) == ["True", "True"]
