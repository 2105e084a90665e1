"""A sweep file for benchmarks/kills.py: many short trials of two ranks."""

from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=32, sequence=16),
    axes={"workers": [2], "micro_batch": list(range(1, 41))},
    measure=Measure(repeats=1, half_width=None, min_seconds=0.5, max_steps=10**6, canary=False),
    resources=Resources(cpus_per_worker=1, gpus_per_worker=0),
)
