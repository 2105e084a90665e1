"""TensorBoard: a run for each trial, with its parameters for the HParams tab."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import printable
from dtsweep.trackers.exported import Export, ExportedTrial, as_folder_name
from dtsweep.trackers.run_folder import RunFolders

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

EVENTS = "events.out.tfevents.0.dtsweep"
"""File of a run. TensorBoard reads names with `tfevents`; its own writer puts the host there."""


class TensorboardRuns(RunFolders):
    """Runs of one sweep, in one log folder."""

    def __init__(self, export: Export, out: str) -> None:
        """List the runs that are there.

        Args:
            export: names the sweep.
            out: log folder; the sweep has a folder in it.
        """
        super().__init__(Path(out).expanduser() / as_folder_name(export.sweep))

    def send(self, trial: ExportedTrial) -> None:
        """Write the run of a trial."""
        from tensorboard.summary.writer.record_writer import RecordWriter

        with self.written_whole(trial, trial.name) as draft, (draft / EVENTS).open("wb") as file:
            writer = RecordWriter(file)
            for event in _events(trial):
                writer.write(event.SerializeToString())


def _events(trial: ExportedTrial) -> Iterator[Event]:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.plugins.text.summary_v2 import text_pb

    yield Event(wall_time=trial.started_s, file_version="brain.Event:2")
    # The tab filters by parameters: a metric has no text.
    parameters = {"status": trial.status, **trial.parameters}
    hparams = hparams_pb(parameters, trial_id=trial.attempt_id, start_time_secs=trial.started_s)
    yield Event(wall_time=trial.started_s, summary=hparams)
    for number, at_s, values in trial.history():
        yield Event(wall_time=at_s, step=number, summary=_scalars(values))
    yield Event(wall_time=trial.ended_s, summary=_scalars(trial.metrics))
    for name, text in trial.tags.items():
        # As a block of code, in which Markdown has no links and pictures.
        block = textwrap.indent(printable(text), "    ")
        yield Event(wall_time=trial.ended_s, summary=text_pb(name, block))


def _scalars(values: Mapping[str, float]) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(
        value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
    )
