"""A sweep file for benchmarks/overhead.py: its training takes next to no time.

Settings are the defaults except for the window.
"""

from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=32, sequence=16),
    axes={"workers": [2], "micro_batch": [1]},
    measure=Measure(repeats=1, min_steps=20, max_steps=20, min_seconds=0),
    resources=Resources(cpus_per_worker=1),
)
