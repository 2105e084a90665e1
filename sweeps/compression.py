"""Does compressing what travels make steps shorter here?

Gradients (of `local_sgd` the changes of a period) travel whole, rounded, thinned out or of low
rank. A combination that does not exist is no point; the plan says why. What an update loses is the
column `compression_error`. On a cluster, go on with `--set workers=2,4,8`, your own `workload` and
those of the compressions that won here.
"""

from dtsweep import Measure, Sweep, workloads
from dtsweep.sweep.compressions import COMPRESSIONS

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [4],  # small, so that a step is exchange in good part
        "sync": ["ddp", "local_sgd", "parameter_server"],
        "compression": [None, *COMPRESSIONS],
    },
    measure=Measure(repeats=1, half_width=0.05, max_seconds=2),
)
