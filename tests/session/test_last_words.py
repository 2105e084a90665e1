"""What the logs and the stacks of ranks say, in the formats of Python, torch and NCCL.

The logs of GPUs are composed of published ones: they were not written by a GPU of these tests.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dtsweep
from dtsweep.session.hang import attempt_stack, behind
from dtsweep.session.last_words import failed_kernel, first_to_end, last_words, place_of

IMPORTS_TORCH = re.compile(r"^ *(?:import|from) torch\b", re.MULTILINE)

HEADING = "--- dtsweep: trial 7 attempt 1: workers=4\n"

FRAMES = """\
frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f in /env/libc10.so)
frame #1: c10d::ProcessGroupNCCL::Watchdog::runLoop() + 0x770 (0x7f in /env/libtorch_cuda.so)
frame #2: clone + 0x44 (0x7f in /usr/lib/libc.so.6)
"""
HINTS = """\
CUDA kernel errors might be asynchronously reported at some other API call.
For debugging consider passing CUDA_LAUNCH_BLOCKING=1
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""
WATCHDOG = (
    "[PG ID 0 PG GUID 0(default_pg) Rank {}] Process group watchdog thread terminated with "
    "exception: {}"
)

ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectLargeIndex: block: [0,0,0], "
    "thread: [64,0,0] Assertion `srcIndex < srcSelectDimSize` failed.\n"
)
TRACEBACK = f"""\
Traceback (most recent call last):
  File "/env/lib/python3.12/site-packages/dtsweep/sync/passes.py", line 97, in passes
    loss = self._loss(model, batch)
  File "/home/me/net.py", line 30, in loss
    return self.head(model(batch)).mean()
  File "/env/lib/python3.12/site-packages/torch/nn/functional.py", line 2551, in embedding
    return torch.embedding(weight, input, padding_idx)
torch.AcceleratorError: CUDA error: device-side assert triggered
{HINTS}"""

TERMINATED = "terminate called after throwing an instance of 'c10::{}'\n  what():  {}\n"
RAISED_FROM = f"\nException raised from run at C.cpp:44 (most recent call first):\n{FRAMES}"

ABORTED = """\
Fatal Python error: Aborted

Thread 0x00007f11e2ffd6c0 (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 331 in wait

Current thread 0x00007f11e37fe6c0 (most recent call first):
  File "/env/lib/python3.12/site-packages/torch/autograd/graph.py", line 865 in _engine_run_backward
  File "/home/me/net.py", line 31 in loss
  File "/env/lib/python3.12/site-packages/dtsweep/sync/passes.py", line 99 in passes
  File "/env/lib/python3.12/site-packages/dtsweep/session/attempt.py", line 84 in run_attempt

Extension modules: numpy._core._multiarray_umath, torch._C (total: 60)
"""
ASSERT = "CUDA error: device-side assert triggered"
BY_WATCHDOG = (
    f"{HEADING}{ASSERTION}{TRACEBACK}"
    f"{TERMINATED.format('DistBackendError', WATCHDOG.format(2, ASSERT))}"
    f"{HINTS}{RAISED_FROM}\n{ABORTED}"
)
WITHOUT_TRACEBACK = (
    f"{HEADING}{TERMINATED.format('AcceleratorError', ASSERT)}{HINTS}{RAISED_FROM}\n{ABORTED}"
)
SEGFAULT = HEADING + "step 3\n" + ABORTED.replace("Aborted", "Segmentation fault")

REMOTE = "NCCL error: remote process exited or there was a network error, NCCL version 2.27.5"
LOST_PEER = f"""\
{HEADING}[rank1]:[E409 05:10:01.930 ProcessGroupNCCL.cpp:2068] {WATCHDOG.format(1, REMOTE)}
ncclRemoteError: A call failed possibly due to a network error or a remote process exiting.
Last error:
socketProgress: Connection closed by remote peer node-1<45074>
{RAISED_FROM}
{TERMINATED.format("DistBackendError", WATCHDOG.format(1, REMOTE))}{RAISED_FROM}"""
TIMEOUT = (
    "[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, "
    "OpType=ALLREDUCE, NumelIn=4, NumelOut=4, Timeout(ms)=600000) ran for 600004 milliseconds"
)
TIMED_OUT = HEADING + TERMINATED.format("DistBackendError", WATCHDOG.format(0, TIMEOUT))
KILLED = f"{HEADING}step 17\n"
LAUNCH_FAILURE = "CUDA error: unspecified launch failure"
ILLEGAL_ACCESS = "CUDA error: an illegal memory access was encountered"


@pytest.mark.parametrize(
    ("log", "words"),
    [
        (BY_WATCHDOG, WATCHDOG.format(2, ASSERT)),
        (WITHOUT_TRACEBACK, ASSERT),
        (HEADING + TRACEBACK, f"torch.AcceleratorError: {ASSERT}"),
        (SEGFAULT, "Fatal Python error: Segmentation fault"),
        (LOST_PEER, WATCHDOG.format(1, REMOTE)),
        (HEADING, ""),
        # An error that the workload went on after.
        (f"{HEADING}{TRACEBACK}retried\n", "retried"),
        # Neither an error nor a line outside of a stack.
        (HEADING + FRAMES, FRAMES.splitlines()[-1]),
    ],
)
def test_last_words_name_the_error_and_not_the_end_of_its_stack(log: str, words: str) -> None:
    assert last_words(log) == words


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (BY_WATCHDOG, "in a kernel: Assertion `srcIndex < srcSelectDimSize` failed (net.py:30)"),
        # The line of the workload in the stacks of the crash.
        (WITHOUT_TRACEBACK, f"{ASSERT} (net.py:31)"),
        # CUDA's documentation: commonly by an invalid pointer.
        (f"{HEADING}{LAUNCH_FAILURE}", LAUNCH_FAILURE),
        (f"{HEADING}RuntimeError: {ILLEGAL_ACCESS}\n", ILLEGAL_ACCESS),
        *((log, None) for log in (KILLED, SEGFAULT, LOST_PEER, TIMED_OUT)),
        # By itself it has many causes.
        (f"{HEADING}RuntimeError: CUDA error: CUBLAS_STATUS_EXECUTION_FAILED when calling", None),
        (f"{HEADING}CUDA error: uncorrectable ECC error encountered", None),
        (f"{BY_WATCHDOG}Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", None),
        # An assertion of C on the host.
        (f"{HEADING}python: net.c:3: step: Assertion `n > 0' failed.", None),
        # Of an earlier trial, and of a rank that had none.
        (BY_WATCHDOG + KILLED, None),
        (TRACEBACK, None),
    ],
)
def test_a_kernel_that_failed_and_no_other_end_is_told_with_the_line_of_the_workload(
    log: str, error: str | None
) -> None:
    assert failed_kernel(log) == error


@pytest.mark.parametrize(
    ("logs", "rank"),
    [
        ({0: TIMED_OUT, 1: LOST_PEER, 2: KILLED, 3: LOST_PEER}, 2),
        ({0: LOST_PEER, 1: LOST_PEER, 2: BY_WATCHDOG, 3: LOST_PEER}, 2),
        # Its own kernel, whatever its peers did then.
        ({0: LOST_PEER, 3: BY_WATCHDOG + "ncclRemoteError"}, 3),
        # A kernel of its own that failed explains what ends without a word elsewhere.
        ({0: KILLED, 2: BY_WATCHDOG}, 2),
        ({0: LOST_PEER, 1: "log unavailable (TimeoutError)"}, 1),
        # What a peer did in an earlier trial.
        ({0: LOST_PEER + KILLED, 1: KILLED}, 0),
        ({0: TIMED_OUT, 1: LOST_PEER, 2: LOST_PEER, 3: LOST_PEER}, None),
        ({}, None),
    ],
)
def test_the_rank_that_lost_no_peer_ended_first_and_without_one_nobody_did(
    logs: dict[int, str], rank: int | None
) -> None:
    assert first_to_end(logs) == rank


# Ranks that a hang waits for, from recorded collectives and stacks of real ranks

RUN = '  File "/env/dtsweep/session/attempt.py", line 84 in run_attempt'
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
    begun = {rank: None if n is None else {"all": n} for rank, n in enumerate(counts)}
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


def test_the_stack_of_a_deep_loop_is_its_own_and_not_its_ranks_wait_for_it() -> None:
    wait = '  File "/env/dtsweep/session/loop_process.py", line 120 in run'
    rank = [*[f'  File "/env/lib/ray.py", line {line} in call' for line in range(90)], wait, RUN]
    # Cut at 100 frames: it does not show where the attempt begins.
    loop = [f'  File "/home/me/net.py", line {line} in forward' for line in range(100)]
    of_rank = "\n".join(["Thread 0x1 (most recent call first):", *rank])
    of_loop = "\n".join(["Thread 0x2 (most recent call first):", *loop])
    assert attempt_stack(f"{of_rank}\n{of_loop}")[0] == loop[0].strip()
    assert attempt_stack(of_rank) == []


def test_rooms_that_use_torch_are_not_the_users_code_and_wait_where_they_exchange() -> None:
    files = Path(dtsweep.__file__).parent.glob("*/*.py")
    rooms = {file.parent.name for file in files if IMPORTS_TORCH.search(file.read_text())}
    # No rank runs it.
    rooms.remove("doctor")
    frames = {room: [f'File "/env/dtsweep/{room}/some.py", line 1 in step'] for room in rooms}
    assert [room for room in rooms if place_of(frames[room]) is not None] == []
    user = ['File "/home/me/net.py", line 30 in loss']
    waits = {room for room in rooms if behind({0: None, 1: None}, {0: frames[room], 1: user})}
    assert rooms - waits == {"hardware", "session", "workloads"}
