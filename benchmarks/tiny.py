"""What is left of a trial's time when its training takes next to none? Settings are the defaults but for the window."""

from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=32, sequence=16),
    axes={"workers": [2], "micro_batch": [1]},
    measure=Measure(min_steps=20, max_steps=20, min_seconds=0),
    resources=Resources(cpus_per_worker=1),
)
