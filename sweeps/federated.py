"""What does it cost that only some of the workers train in a round?

`federated` draws a share `participation` of the workers for each `sync_period` steps; the others
wait. So a step has fewer samples, and a worker sends less on average. With `participation=1` all
train: without weights that is the training of `local_sgd` with `local_momentum="reset"`. The rate
of samples is measured here, not how fast the loss falls by sample. On a cluster, go on with
`--set workers=16 --set participation=0.1,0.25,0.5,1` and your own `workload`.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [4],  # small, so that a step is exchange in good part
        "sync": ["federated"],
        "participation": [0.5, 1.0],
        "sync_period": [2, 8, 32],
    },
    measure=Measure(repeats=2, half_width=0.05, max_seconds=4),
)
