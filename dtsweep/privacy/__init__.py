"""Results as strangers may see them: without secrets, home folders, users and hosts.

Any process; imports nothing heavy. In reading order:

    redactor        replaces what identifies people and hosts
    shared          trials for exports, without columns that name hosts and users
    trials          the table of trials, redacted before anything is made of it
"""

from __future__ import annotations

from dtsweep.privacy.redactor import Redactor, local_redactor, redactor_for, redactor_of
from dtsweep.privacy.shared import shared_trials
from dtsweep.privacy.trials import redacted_trials, redactor_of_trials

__all__ = [
    "Redactor",
    "local_redactor",
    "redacted_trials",
    "redactor_for",
    "redactor_of",
    "redactor_of_trials",
    "shared_trials",
]
