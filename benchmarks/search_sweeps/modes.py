"""Batches, accumulation and sync modes: 128 points."""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={
        "workers": [1, 2],
        "micro_batch": [1, 2, 4, 8, 16, 32],
        "accumulation": [1, 2, 4],
        "sync": ["ddp", "zero1", "local_sgd", "parameter_server"],
    },
    skip=lambda p: "over 64 samples a step" if p.global_batch > 64 else None,
    measure=Measure(half_width=0.05, max_seconds=2),
    goal="frontier",
)
