"""Which rate of requests can one or two replicas take before a percent waits longer than 100 ms?

Run: python -m dtsweep sweeps/inference.py

Needs Ray Serve (`pip install 'dtsweep[serve]'`). A request is a forward pass on 128 tokens; with
`workload.new_tokens` it would generate some. Points without a rate are closed loops: by their
batches a simulated queue predicts each open loop, which the report shows.
"""

from dtsweep import Goal, Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=4, width=256, sequence=128),
    kind="inference",
    axes={
        "replicas": [1, 2],
        "micro_batch": [1, 4],
        "rate": [None, 5, 10, 15, 20, 30, 40, 60, 80, 120, 160],
        "max_batch": [4],
        "max_wait_s": [0.01],
    },
    measure=Measure(half_width=0.05, min_seconds=1, max_seconds=15),
    goal=Goal(maximize="requests_per_s", where="request_p99_s <= 100ms"),
    indifference=0.1,
    max_launches=3,
    resources=Resources(cpus_per_worker=1),
)
