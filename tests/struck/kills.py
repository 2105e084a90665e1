"""A sweep with a killed process in each trial but the last, on a Ray with just its world's CPUs."""

import os

from struck import Struck

from dtsweep import Measure, Resources, Sweep

KILLED = ("Slot", "ResourceTrainable", "Shard")

sweep = Sweep(
    workload=Struck(),
    axes={
        "workers": [1],
        "workload.by": [*KILLED, "nothing"],
        "sync": lambda p: "parameter_server" if p.workload.by == "Shard" else "ddp",
    },
    measure=Measure(
        repeats=1, half_width=None, min_seconds=2, min_steps=5, max_steps=10**6, canary=False
    ),
    resources=Resources(cpus_per_worker=os.cpu_count() or 1),
)
