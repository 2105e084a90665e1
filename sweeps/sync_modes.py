"""How fast is each way of combining the workers' work, from exact synchrony to none?

The exact modes make the same updates and differ in what they send and keep; `local_sgd` and
`diloco` exchange once in `sync_period` steps; the workers of a `parameter_server` may run
`staleness` steps apart: 0 is none, None is any number. A combination of a mode with a field that it
does not read is no point; the plan says so.
"""

from dtsweep import Measure, Sweep, workloads
from dtsweep.sweep.modes import MODES

sweep = Sweep(
    workload=workloads.Gpt(layers=2, width=128, sequence=64, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [4],  # small, so that a step is exchange in good part
        "sync": list(MODES),
        "sync_period": [None, 2, 32],  # None: the mode's own, 8 or 50
        "staleness": [None, 0, 2],
        "shards": [None, 2],  # None: the mode's own, 1
    },
    measure=Measure(repeats=2, half_width=0.05, max_seconds=2),
)
