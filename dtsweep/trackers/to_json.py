"""One JSON document: trials with parameters, metrics, tags and steps, and the columns' units."""

from __future__ import annotations

import json
from importlib.metadata import version
from typing import Any

from dtsweep.trackers.exported import Export, ExportedTrial

FORMAT = 1
"""Rises when a key changes its meaning or goes away; keys may be added without that."""


def trials_json(export: Export) -> str:
    """Write all trials as a JSON document; what is unknown is left out."""
    names = [*export.parameter_names, *export.metric_names]
    document = {
        "format": FORMAT,
        "dtsweep_version": version("dtsweep"),
        "sweep": export.sweep,
        "units": export.units(),
        "meanings": {name: export.columns[name].meaning for name in names},
        "trials": [_trial(trial) for trial in export.trials],
    }
    return json.dumps(document, allow_nan=False) + "\n"


def _trial(trial: ExportedTrial) -> dict[str, Any]:
    return {
        "trial_id": trial.trial_id,
        "attempt_id": trial.attempt_id,
        "name": trial.name,
        "status": trial.status,
        "reason": trial.reason,
        "parameters": trial.parameters,
        "metrics": trial.metrics,
        "tags": trial.tags,
        "steps": {
            "step": [step.number for step in trial.steps],
            "warmup": [step.is_warmup for step in trial.steps],
            "step_s": [step.step_s for step in trial.steps],
            "loss": [step.loss for step in trial.steps],
        },
    }
