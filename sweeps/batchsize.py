"""How large may the batch grow before latency outgrows throughput?"""

from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=64, sequence=32, data="pydoc"),
    axes={
        "workers": [1, 2],
        "micro_batch": [4, 16, 64],
        "accumulation": [1, 4],
        "sync": ["ddp", "local_sgd", "parameter_server"],
    },
    skip=lambda p: "over 128 samples a step" if p.global_batch > 128 else None,
    measure=Measure(half_width=0.05, min_seconds=0.3, max_seconds=8),
    goal="throughput",  # the best, or one that is equal to it within 5 %
    indifference=0.05,
    max_launches=4,
    resources=Resources(cpus_per_worker=1),
)
