"""What does one worker of half the speed cost, and what does balancing win back?

`slow_rank=2` makes each pass of the last worker take twice as long. With equal shares of samples
the other worker waits for it. `balance` deals the samples of a pass by measured speed; a step still
trains on the same samples. The report takes the fastest point, which has no slow worker. What it
costs, and what balancing wins back, say

    dtsweep difference results/stragglers "slow_rank=none balance=none" "slow_rank=2 balance=none"
    dtsweep difference results/stragglers "slow_rank=2 balance=none" "slow_rank=2 balance=dynamic"

On a cluster of different nodes, go on without `slow_rank`:
`--set slow_rank=none --set workers=4,8`.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [12],
        "slow_rank": [None, 2.0],
        "balance": [None, "static", "dynamic"],
    },
    measure=Measure(repeats=2, half_width=0.05, max_seconds=10),
)
