"""Batches, periods of local updates, compressions and precision: 160 points."""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Cifar10Cnn(),
    axes={
        "workers": [1, 2],
        "micro_batch": [4, 8, 16, 64, 256],
        "precision": ["fp32", "bf16"],
        "sync": ["ddp", "local_sgd"],
        "sync_period": [None, 2, 8, 32],
        "compression": [None, "int8"],
    },
    measure=Measure(half_width=0.05, max_seconds=2),
    goal="frontier",
)
