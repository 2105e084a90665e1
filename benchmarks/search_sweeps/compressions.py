"""Batches, sync modes and compressions with two workers: 144 points."""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=192, sequence=32, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [1, 2, 4, 8, 16, 32],
        "accumulation": [1, 2],
        "sync": ["ddp", "local_sgd", "parameter_server"],
        "compression": [None, "int8", "topk", "powersgd"],
    },
    measure=Measure(half_width=0.05, max_seconds=2),
    goal="frontier",
)
