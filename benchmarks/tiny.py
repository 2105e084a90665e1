"""What is left of a trial's time when its training takes next to none?"""

from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=32, sequence=16),
    axes={"workers": [2], "micro_batch": [1]},
    measure=Measure(half_width=None, warmup_steps=1, min_steps=5, min_seconds=0, canary=False),
    resources=Resources(cpus_per_worker=1),
)
