"""Which grid of workers is the fastest: samples of their own, shared layers, or stages?

Every grid of data parallel × tensor parallel × pipeline, for steps of 64 samples in four passes.
Grids that don't divide the workers are skipped. On a cluster, go on with `--set workers=4,8`.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=4, width=256, sequence=64, heads=8),
    axes={
        "workers": [2],
        "tensor_parallel": [1, 2, 4],
        "pipeline_parallel": [1, 2, 4],
        "micro_batch": lambda point: 16 // point.data_parallel,
        "accumulation": [4],
    },
    measure=Measure(repeats=1, max_seconds=10),
)
