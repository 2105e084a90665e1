"""What does a small memory cost in time: shards, gathers in bf16, or blocks computed again?

On a cluster, go on with `--set workers=4,8`, and on GPUs with `--set offload=false,true`.
"""

from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=8, width=256, sequence=128, data="pydoc"),
    axes={
        "workers": [2],
        "micro_batch": [16],
        "optimizer": ["adamw"],
        "precision": ["bf16"],
        "sync": ["ddp", "fsdp"],
        "shard_precision": [None, "bf16"],
        "checkpointing": [None, "blocks"],
    },
    measure=Measure(repeats=1, half_width=0.05, max_seconds=15),
    # glibc keeps what is freed, so that peaks on a CPU hold more than was in use; this gives large
    # tensors back.
    resources=Resources(environment={"MALLOC_MMAP_THRESHOLD_": "1048576"}),
)
