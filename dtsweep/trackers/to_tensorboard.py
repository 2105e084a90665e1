"""TensorBoard: a run for each trial, with its parameters and metrics for the HParams tab."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.errors import printable
from dtsweep.trackers.exported import Export, ExportedTrial, as_folder_name
from dtsweep.trackers.run_folder import RunFolders

if TYPE_CHECKING:
    from tensorboard.compat.proto.event_pb2 import Event

EVENTS = "events.out.tfevents.0.dtsweep"
"""File of a run. TensorBoard reads names with `tfevents`; its own writer puts the host there."""

STATUS = "status"
"""Parameter that the HParams tab filters by: a metric has no text."""


class TensorboardRuns(RunFolders):
    """Runs of one sweep, in one log folder."""

    def __init__(self, export: Export, out: str) -> None:
        """List the runs that are there, and declare the columns of the HParams tab.

        Args:
            export: names the sweep, and has the columns' units and meanings.
            out: log folder; the sweep has a folder in it.
        """
        from tensorboard.plugins.hparams.summary_v2 import HParam, Metric, hparams_config_pb

        super().__init__(Path(out).expanduser() / as_folder_name(export.sweep))
        metrics = [export.columns[name] for name in export.metric_names]
        summary = hparams_config_pb(
            [HParam(name) for name in (STATUS, *export.parameter_names)],
            [
                Metric(one.name, display_name=f"{one.name} [{one.unit}]", description=one.meaning)
                for one in metrics
            ],
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        draft = self.folder / ".dtsweep_columns"
        _write(draft, [_event(0.0, summary=summary)], began_s=0.0)
        draft.replace(self.folder / EVENTS)

    def send(self, trial: ExportedTrial) -> None:
        """Write the run of a trial."""
        with self.written_whole(trial, trial.name) as draft:
            _write(draft / EVENTS, _events(trial), began_s=trial.started_s)


def _events(trial: ExportedTrial) -> Iterator[Event]:
    from tensorboard.plugins.hparams.summary_v2 import hparams_pb
    from tensorboard.plugins.text.summary_v2 import text_pb

    parameters = {STATUS: trial.status, **trial.parameters}
    hparams = hparams_pb(parameters, trial_id=trial.attempt_id, start_time_secs=trial.started_s)
    yield _event(trial.started_s, summary=hparams)
    for step in trial.history():
        yield _event(trial.started_s + step.at_s, summary=_scalars(step.values), step=step.number)
    if trial.metrics:
        yield _event(trial.ended_s, summary=_scalars(trial.metrics))
    for name, text in {"reason": trial.reason, **trial.tags}.items():
        if text:
            # As a block of code, in which Markdown has no links and pictures.
            block = textwrap.indent(printable(text), "    ")
            yield _event(trial.ended_s, summary=text_pb(name, block))
    yield _event(trial.ended_s, summary=_session_end(trial))


def _scalars(values: Any) -> Any:
    from tensorboard.compat.proto.summary_pb2 import Summary

    return Summary(
        value=[Summary.Value(tag=name, simple_value=value) for name, value in values.items()]
    )


def _session_end(trial: ExportedTrial) -> Any:
    """Status and end of a trial, as the HParams tab has them."""
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.plugins.hparams import api_pb2, metadata, plugin_data_pb2

    status = api_pb2.STATUS_FAILURE
    if trial.status == "ok":
        status = api_pb2.STATUS_SUCCESS
    end = plugin_data_pb2.SessionEndInfo(status=status, end_time_secs=trial.ended_s)
    value = Summary.Value(
        tag=metadata.SESSION_END_INFO_TAG,
        metadata=metadata.create_summary_metadata(
            plugin_data_pb2.HParamsPluginData(session_end_info=end)
        ),
        tensor=metadata.NULL_TENSOR,
    )
    return Summary(value=[value])


def _event(at_s: float, *, summary: Any, step: int = 0) -> Event:
    from tensorboard.compat.proto.event_pb2 import Event

    return Event(wall_time=at_s, step=step, summary=summary)


def _write(file: Path, events: Iterable[Event], *, began_s: float) -> None:
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.summary.writer.record_writer import RecordWriter

    writer = RecordWriter(file.open("wb"))
    try:
        writer.write(Event(wall_time=began_s, file_version="brain.Event:2").SerializeToString())
        for event in events:
            writer.write(event.SerializeToString())
    finally:
        writer.close()
