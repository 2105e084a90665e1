"""Results as strangers may see them: without secrets, home folders, users and hosts.

Any process; imports nothing heavy. In reading order:

    secret_texts    secrets in texts
    redactor        replaces what identifies people and hosts
"""

from __future__ import annotations

from dtsweep.privacy.redactor import Redactor, redactor_for, redactor_of

__all__ = ["Redactor", "redactor_for", "redactor_of"]
