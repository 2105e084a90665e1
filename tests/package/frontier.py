from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Mlp(width=512),
    axes={
        "workers": [2],
        "micro_batch": [16, 64],
        "sync": ["ddp", "delayed"],
    },
    resources=Resources(gpus_per_worker=0, cpus_per_worker=1),
    measure=Measure(repeats=3, max_seconds=20),
)
