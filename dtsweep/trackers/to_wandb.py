"""Weights & Biases: an offline run for each trial, which `wandb sync` uploads."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import shortened
from dtsweep.trackers.exported import Export, ExportedTrial
from dtsweep.trackers.run_folder import as_folder_name, as_key, written_whole
from dtsweep.trackers.steps import thinned

if TYPE_CHECKING:
    from wandb import Settings

MOST_LABEL = 64
"""Characters of a tag, at most."""


class WandbRuns:
    """Offline runs of one sweep: a project of this name, and a group in it."""

    def __init__(self, export: Export, out: str) -> None:
        """List the runs that are there.

        Args:
            export: names the project and the group.
            out: folder; the runs lie in its folder `wandb`.
        """
        self._folder = Path(out).expanduser() / "wandb"
        self.place = str(self._folder)
        self._sweep = export.sweep
        self._units: Mapping[str, str] = {}
        self._sent = {entry.name.rpartition("-")[2] for entry in self._folder.glob("offline-run-*")}

    def describe(self, export: Export) -> None:
        """Keep the units of parameters and metrics, for the configuration of each run."""
        self._units = export.units()

    def has(self, trial: ExportedTrial) -> bool:
        """True if there is a run of this attempt."""
        return as_key(trial.attempt_id) in self._sent

    def send(self, trial: ExportedTrial) -> None:
        """Write the offline run of a trial."""
        run_id = as_key(trial.attempt_id)
        started = trial.started_at.strftime("%Y%m%d_%H%M%S")
        folder = self._folder / f"offline-run-{started}-{run_id}"
        with written_whole(folder) as draft:
            written = self._write(trial, run_id, draft)
            for file in written.glob("*.wandb"):
                file.rename(draft / file.name)
            # Logs of the client, which name folders and hosts.
            shutil.rmtree(draft / "wandb")
        self._sent.add(run_id)

    def _write(self, trial: ExportedTrial, run_id: str, draft: Path) -> Path:
        """Have the client write a run; return its folder."""
        import wandb

        run = wandb.init(
            project=as_folder_name(self._sweep),
            group=self._sweep,
            id=run_id,
            name=trial.name,
            config=self._config(trial),
            tags=[shortened(tag, MOST_LABEL) for tag in _labels(trial)],
            notes=trial.reason,
            reinit="create_new",
            settings=_settings(draft),
        )
        for step in thinned(trial.steps):
            run.log(step.values(), step=step.number)
        run.summary.update({"status": trial.status, **trial.metrics})
        folder = Path(run.dir).parent
        run.finish(exit_code=0 if trial.is_ok else 1)
        return folder

    def _config(self, trial: ExportedTrial) -> dict[str, Any]:
        """Parameters of a trial; what else is known of it in a part of its own."""
        known = {
            "trial_id": trial.trial_id,
            "attempt_id": trial.attempt_id,
            "status": trial.status,
            "reason": trial.reason,
            "units": self._units,
            **trial.tags,
        }
        return {**trial.parameters, "dtsweep": known}


def _labels(trial: ExportedTrial) -> list[str]:
    """Tags of the run: by what trials are told apart, and the status."""
    names = ("workload", "semantics", "harness")
    known = {**trial.parameters, **trial.tags}
    return ["dtsweep", trial.status, *(str(known[name]) for name in names if known.get(name))]


def _settings(folder: Path) -> Settings:
    """Settings of the client: offline, silent, and nothing of this machine and its user."""
    import wandb

    return wandb.Settings(
        mode="offline",
        root_dir=str(folder),
        console="off",
        silent=True,
        disable_code=True,
        disable_git=True,
        host="",
        username="",
        x_disable_machine_info=True,
        x_disable_meta=True,
        x_disable_stats=True,
        x_save_requirements=False,
    )
