"""What does sharding cost in time and save in memory?

With AdamW a worker of `ddp` holds a model five times: parameters, gradients, buckets and two
averages. `zero1` deals out the averages, `fsdp_grad` all but the parameters while a step computes,
`fsdp` those too. On a cluster, go on with `--set workers=2,4,8 --set sync=ddp,fsdp,hsdp`.
"""

from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=4, sequence=64, data="pydoc"),
    axes={
        "workers": [2],
        "workload.width": [256, 512],  # 3 and 13 million parameters
        "micro_batch": [4],
        "optimizer": ["adamw"],
        "sync": ["ddp", "zero1", "fsdp_grad", "fsdp"],
    },
    measure=Measure(repeats=1, half_width=0.05, max_seconds=10),
    # glibc keeps what is freed, so that peaks on a CPU hold more than was in use; this gives large
    # tensors back.
    resources=Resources(environment={"MALLOC_MMAP_THRESHOLD_": "1048576"}),
)
