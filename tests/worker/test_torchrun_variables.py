"""What a script reads in its environment, as `torchrun` sets it."""

from __future__ import annotations

import os
import sys
import time
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


def test_torchrun_sets_no_variable_that_is_missing(tmp_path: Path) -> None:
    import json
    import subprocess

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
    for name, value in {
        "RANK": "1",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "NODE_RANK": "0",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
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


def fail_on(rank: int, folder: Path, failing: tuple[int, ...], seconds: float) -> None:
    """Ranks fail, or work for a time; note whether they have a group again, and when."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/session", rank=rank, world_size=2
    )
    began = time.monotonic()
    try:
        with without_group("script"):
            if rank in failing:
                raise ValueError("mine")
            time.sleep(seconds)
    except ValueError:
        pass
    words = f"{distributed.is_initialized()} {time.monotonic() - began:.1f}"
    (folder / f"{rank}.said").write_text(words)
    if distributed.is_initialized():
        distributed.destroy_process_group()


def said(folder: Path) -> list[tuple[str, float]]:
    words = [(folder / f"{rank}.said").read_text().split() for rank in range(2)]
    return [(has_group, float(seconds)) for has_group, seconds in words]


def test_a_rank_that_fails_alone_does_not_wait_for_the_others(tmp_path: Path) -> None:
    spawn(fail_on, args=(tmp_path, (1,), 5.0), nprocs=2)
    (other, worked_s), (failed, waited_s) = said(tmp_path)
    assert (other, failed) == ("False", "False")
    assert waited_s < 4.5 < worked_s


def test_ranks_that_all_fail_have_their_group_again(tmp_path: Path) -> None:
    spawn(fail_on, args=(tmp_path, (0, 1), 0.0), nprocs=2)
    assert [has_group for has_group, _ in said(tmp_path)] == ["True", "True"]
