"""One pass over CIFAR-10: how long does it take, and how much of that do more workers save?

Four launches of each point give the intervals. The 50,000 images are noise of the same shape; the
data set itself is `workloads.Cifar10Cnn(data="folder")`. On a cluster, go on with
`--set workers=1,2,4,8`.
"""

from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Cifar10Cnn(),
    axes={
        "workers": [1, 2],
        "micro_batch": [32, 128],
    },
    measure=Measure(half_width=0.05, max_seconds=5, repeats=4),
)
