"""Weights & Biases: an offline run for each trial, which `wandb sync` uploads."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from pathlib import Path

from dtsweep.trackers.exported import UNITS, Export, ExportedTrial, as_folder_name
from dtsweep.trackers.run_folder import RunFolders


class WandbRuns(RunFolders):
    """Offline runs of one sweep: a project of this name, and a group in it."""

    def __init__(self, export: Export, out: str) -> None:
        """List the runs that are there.

        Args:
            export: names the project and the group.
            out: folder; the runs lie in its folder `wandb`.
        """
        super().__init__(Path(out).expanduser() / "wandb")
        self._sweep = export.sweep

    def send(self, trial: ExportedTrial) -> None:
        """Write the offline run of a trial."""
        started = datetime.fromtimestamp(trial.started_s, UTC).strftime("%Y%m%d_%H%M%S")
        with self.written_whole(trial, f"offline-run-{started}") as draft:
            self._write(trial, draft)
            for file in draft.glob("wandb/*/*.wandb"):
                file.rename(draft / file.name)
            # Logs of the client, which name folders and hosts.
            shutil.rmtree(draft / "wandb")

    def _write(self, trial: ExportedTrial, draft: Path) -> None:
        """Have the client write a run, offline, with nothing of this machine and its user."""
        import wandb

        settings = wandb.Settings(
            mode="offline",
            root_dir=str(draft),
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
        run = wandb.init(
            project=as_folder_name(self._sweep),
            group=self._sweep,
            id=trial.key,
            name=trial.name,
            config={**trial.parameters, "dtsweep": {**trial.tags, "units": UNITS}},
            tags=["dtsweep", trial.status],
            reinit="create_new",
            settings=settings,
        )
        for number, _, values in trial.history():
            run.log(values, step=number)
        run.summary.update({"status": trial.status, **trial.metrics})
        run.finish(exit_code=int(trial.status != "ok"))
