"""One global batch: is it better made of large micro-batches, or of small ones that accumulate?

Accumulation needs less memory and exchanges as rarely; what it costs is small matrices. A function
of the other axes keeps the global batch at 128.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [2, 8, 32, 64],
        "accumulation": lambda p: 128 // (p.workers * p.micro_batch),
        "sync": ["ddp", "local_sgd"],
    },
    measure=Measure(repeats=1, half_width=0.05, max_seconds=5),
)
