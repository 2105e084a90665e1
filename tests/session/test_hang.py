"""Ranks that a hang waits for, from recorded collectives and stacks of real ranks."""

from __future__ import annotations

import pytest

from dtsweep.session.hang import attempt_stack, behind

RUN = '  File "/env/dtsweep/worker/attempt.py", line 84 in run_attempt'
SERVE = '  File "/env/dtsweep/session/worker_loop.py", line 72 in serve'

BACKWARD = f"""\
Thread 0x00007f11e2ffd6c0 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/env/ray/_private/worker.py", line 969 in main_loop

Thread 0x00007f11e37fe6c0 (most recent call first):
  File "/env/torch/autograd/graph.py", line 865 in _engine_run_backward
  File "/env/torch/autograd/__init__.py", line 354 in backward
  File "/env/torch/_tensor.py", line 625 in backward
  File "/env/dtsweep/sync/passes.py", line 99 in passes
{RUN}
{SERVE}
"""
IN_LOSS = f"""\
Current thread 0x00007fd4b9ffb6c0 (most recent call first):
  File "/home/me/dtsweep/net.py", line 30 in loss
  File "/env/dtsweep/sync/passes.py", line 97 in passes
{RUN}
{SERVE}

Thread 0x00007fd4baffd6c0 (most recent call first):
  File "/usr/lib/python3.11/selectors.py", line 468 in select
"""
IN_STORE = f"""\
Thread 0x00007f11e37fe6c0 (most recent call first):
  File "/env/torch/distributed/distributed_c10d.py", line 4800 in barrier
  File "/env/dtsweep/hardware/device.py", line 31 in synchronize_all
{RUN}
{SERVE}
"""


def test_the_stack_is_the_attempts_last_one_among_all_threads() -> None:
    frames = attempt_stack(f"its words\n{BACKWARD}")
    assert frames[0] == 'File "/env/torch/autograd/graph.py", line 865 in _engine_run_backward'
    assert len(frames) == 6
    assert attempt_stack(BACKWARD + IN_LOSS) == attempt_stack(IN_LOSS)


@pytest.mark.parametrize(
    ("counts", "logs", "ranks"),
    [
        # Fewer collectives, whatever the stacks say.
        ((42, 41), (IN_LOSS, BACKWARD), [1]),
        # Equal ones: the rank outside of any exchange.
        ((42, 42), (BACKWARD, IN_LOSS), [1]),
        ((42, 42), (IN_LOSS, IN_STORE), [0]),
        # It does not say how far it is.
        ((42, None), (), [1]),
        # Ranks that look the same are not told apart.
        *(((42, 42), (log, log), []) for log in (BACKWARD, IN_LOSS, "no stacks")),
    ],
)
def test_the_rank_that_is_behind_in_its_group_is_waited_for(
    counts: tuple[int | None, ...], logs: tuple[str, ...], ranks: list[int]
) -> None:
    begun = {rank: count and {"all": count} for rank, count in enumerate(counts)}
    stacks = {rank: attempt_stack(log) for rank, log in enumerate(logs)}
    assert behind(begun, stacks) == ranks


@pytest.mark.parametrize(
    ("counts", "ranks"),
    [
        # Rank 3 does not come to the exchange in its node: rank 2 waits for it, rank 0 for rank 2.
        (
            {
                0: {"node 0": 5, "even": 5},
                1: {"node 0": 5, "odd": 5},
                2: {"node 1": 5, "even": 4},
                3: {"node 1": 4, "odd": 4},
            },
            [3],
        ),
        # As many exchanges, in other groups: each waits for the other.
        ({0: {"a": 5, "b": 4}, 1: {"a": 4, "b": 5}}, []),
    ],
)
def test_of_ranks_that_wait_in_different_groups_the_one_that_is_ahead_in_none_is_named(
    counts: dict[int, dict[str, int]], ranks: list[int]
) -> None:
    assert behind(counts, {}) == ranks
