"""Which of the compiler, the fused optimizer and the attention kernel makes a step faster here?"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64),
    axes={
        "micro_batch": [1, 16],
        "optimizer": ["adamw"],
        "compile": [False, True],
        "fused": [False, True],
        "attention": [None, "math"],
    },
    measure=Measure(repeats=1, max_seconds=5),
)
