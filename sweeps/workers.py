"""How much faster does one and the same training go on more workers?

Strong scaling: a step has `global_batch` samples however many workers share them, and accumulation
follows. On a cluster, go on with `--set workers=1,2,4,8`.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={
        "workers": [1, 2],
        "global_batch": [32, 64],
        "micro_batch": [4, 16, 32],
    },
    measure=Measure(repeats=1, half_width=0.05, max_seconds=5),
)
