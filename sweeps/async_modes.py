"""What does asynchrony buy with one slow worker?

One of two workers takes twice as long for its passes (`slow_rank`), or none does. In `ddp` and with
`staleness=0` all wait for it. With `drop_slowest=1` the servers go on without its gradient. With
`staleness=2` it may be two steps behind, with None any number. With `push_period=4` workers push
the sum of four steps' gradients. The report gives each semantics a frontier of its own: a faster
step is not a better one.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=64, sequence=32),
    axes={
        "workers": [2],
        "micro_batch": [8],
        "sync": ["ddp", "parameter_server"],
        "slow_rank": [None, 2],
        "staleness": [None, 0, 2],
        "drop_slowest": [0, 1],
        "push_period": [1, 4],
    },
    measure=Measure(repeats=2, half_width=0.05, max_seconds=4),
)
