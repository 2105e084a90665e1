"""What does asynchrony buy with one slow worker?

One of two workers takes twice as long for its passes (`slow_rank`). In `ddp` and with `staleness=0`
all wait for it. With `drop_slowest=1` the servers go on without its gradient. With `staleness=4` it
may be four steps behind, with None any number. With `push_period=4` workers push the sum of four
steps' gradients. The report says how many samples per second each semantics reaches: a faster step
is not a better one. `dtsweep report results/async_modes --all` lists the points of all of them.
Without a slow worker: `--set slow_rank=none`.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=64, sequence=32),
    axes={
        "workers": [2],
        "micro_batch": [8],
        "sync": ["ddp", "parameter_server"],
        "slow_rank": [2],
        "staleness": [None, 0, 4],
        "drop_slowest": [0, 1],
        "push_period": [1, 4],
    },
    measure=Measure(repeats=2, half_width=0.05, max_seconds=4),
)
