"""How large may the batch grow before latency outgrows throughput?"""

from dtsweep import Measure, Resources, Sweep, workloads
from dtsweep.sweep.point import Point


def reason_to_skip(point: Point) -> str | None:
    """Give the reason why a point is not worth a measurement."""
    if point.global_batch > 128:
        return "over 128 samples a step"
    if point.workers == 1 and point.sync == "local_sgd":
        return "one worker averages with nobody"
    return None


sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=64, sequence=32, data="pydoc"),
    axes={
        "workers": [1, 2],
        "micro_batch": [4, 16, 64],
        "accumulation": [1, 4],
        "sync": ["ddp", "local_sgd", "parameter_server"],
    },
    skip=reason_to_skip,
    measure=Measure(half_width=0.05, min_seconds=0.5, max_seconds=8),
    goal="throughput",  # the best, or one that is equal to it within 5 %
    indifference=0.05,
    max_launches=4,
    resources=Resources(cpus_per_worker=1),
)
