"""Checkpoints of a training (torch.distributed.checkpoint), from which the next attempt goes on."""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from dtsweep.measure.isolated_exchange import max_over_ranks

_Curve = Sequence[Mapping[str, Any]]
"""Rows of `curves`."""

_COMPLETE = ".metadata"
"""File that torch writes last."""


class TrainingState:
    """Saves and loads a training; all ranks call each method at the same step.

    The folder has to be one that the ranks of the next attempt see: on one machine any, else a
    shared file system. Without it the next attempt begins again.
    """

    def __init__(
        self,
        folder: str,
        model: nn.Module,
        optimizer: torch.optim.Optimizer,
        *,
        rank: int,
        device: torch.device,
    ) -> None:
        """Take the folder of a trial, its model and optimizer; ranks save their own shards."""
        self._folder = Path(folder)
        self._model, self._optimizer = model, optimizer
        self._rank, self._device = rank, device

    def save(self, steps: int, curve: _Curve) -> None:
        """Save the state after so many steps of this rank; then older ones are removed."""
        new = self._folder / f"step-{steps:09d}"
        state_dict_saver.save(self._state(steps, curve), checkpoint_id=new)
        if self._rank == 0:
            for old in self._complete():
                if old != new:
                    shutil.rmtree(old, ignore_errors=True)

    def load(self) -> tuple[int, _Curve] | None:
        """Load the newest state, and return its steps and curve; None where there is none.

        Random states of the ranks are restored, too.
        """
        newest = self._newest_everywhere()
        if newest is None:
            return None
        # The optimizer has no state before its first step; torch makes one to load into, also for
        # parameters that have had no gradient. Copies: a load that fails leaves the model as it is.
        state = copy.deepcopy(self._state(0, []))
        try:
            planner = DefaultLoadPlanner(allow_partial_load=True)
            state_dict_loader.load(state, checkpoint_id=newest, planner=planner)
        except CheckpointException:
            self._optimizer.state.clear()
            return None
        set_state_dict(
            self._model,
            self._optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        torch.set_rng_state(state[f"random {self._rank}"])
        if f"random GPU {self._rank}" in state:
            torch.cuda.set_rng_state(state[f"random GPU {self._rank}"])
        progress = json.loads(state[f"progress {self._rank}"])
        return progress["steps"], progress["curve"]

    def forget(self) -> None:
        """Remove all states: the training is over."""
        if self._rank == 0:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _newest_everywhere(self) -> Path | None:
        """Folder of the newest state, if all ranks see the same one."""
        steps = -1
        if kept := self._complete():
            steps = int(kept[-1].name.removeprefix("step-"))
        most, fewest = max_over_ranks(self._device, steps, -steps)
        if most < 0 or most != -fewest:
            return None
        return kept[-1]

    def _complete(self) -> list[Path]:
        """Folders of whole checkpoints, the oldest first."""
        return sorted(path.parent for path in self._folder.glob(f"step-*/{_COMPLETE}"))

    def _state(self, steps: int, curve: _Curve) -> dict[str, Any]:
        model, optimizer = get_state_dict(self._model, self._optimizer)
        state: dict[str, Any] = {"model": model, "optimizer": optimizer}
        state[f"progress {self._rank}"] = json.dumps({"steps": steps, "curve": list(curve)})
        state[f"random {self._rank}"] = torch.get_rng_state()
        if torch.cuda.is_initialized():
            state[f"random GPU {self._rank}"] = torch.cuda.get_rng_state()
        return state
