"""What does one worker of half the speed cost?

`slow_rank=2` makes each pass of the last worker take twice as long, and the other worker waits for
it. The report takes the fastest point, which has no slow worker. What the slow one costs says

    dtsweep difference results/stragglers slow_rank=none slow_rank=2

On a cluster of different nodes, go on without `slow_rank`:
`--set slow_rank=none --set workers=4,8`.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={"workers": [2], "micro_batch": [12], "slow_rank": [None, 2.0]},
    measure=Measure(repeats=2, half_width=0.05, max_seconds=10),
)
