"""What a slot makes of a head that says nothing of its nodes.

No Ray runs here, so that every question fails.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from dtsweep.session.node_watch import NodeWatch
from dtsweep.session.session import SessionError
from dtsweep.sweep.point import World
from tests.session.test_slot import settings


def test_a_head_that_answers_with_an_error_ends_no_session_and_fails_a_start_that_is_tried_again(
    tmp_path: Path,
) -> None:
    watch = NodeWatch(replace(settings(tmp_path), is_private=False, node_timeout_s=1.0))
    assert asyncio.run(watch.stay(["a node"], until=0.0))
    with pytest.raises(SessionError, match="did not say in 1 s which nodes there are") as caught:
        asyncio.run(watch.choose(World(workers=1, placement="pack", environment=())))
    assert (caught.value.status, caught.value.hopeless_for) == ("collateral", None)
