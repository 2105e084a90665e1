"""Code that trains as a point does: its settings for dtsweep, and plain PyTorch where torch has the mode."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

from dtsweep.sweep.point import AXES, DEFAULTS

if TYPE_CHECKING:
    import pandas as pd

_WIDTH = 76
"""Of a line: what a terminal of 80 columns shows beside an indent."""

_DDP = "from torch.nn.parallel import DistributedDataParallel"
_ZERO = "from torch.distributed.optim import ZeroRedundancyOptimizer"
_FSDP = "from torch.distributed.fsdp import fully_shard"
_WRAP = "model = DistributedDataParallel(model{buckets})"
_SHARD = """\
for block in blocks:
    fully_shard(block{reshard})
fully_shard(model, reshard_after_forward=False)"""
_PLAIN = "optimizer = {optimizer}(model.parameters(), {options})"
_SHARDED = """\
optimizer = ZeroRedundancyOptimizer(
    model.parameters(), {optimizer}, {options}
)"""

_MODES = {
    "ddp": ([_DDP], _WRAP, _PLAIN),
    "zero1": ([_ZERO, _DDP], _WRAP, _SHARDED),
    "fsdp": ([_FSDP], _SHARD.format(reshard=""), _PLAIN),
    "fsdp_grad": ([_FSDP], _SHARD.format(reshard=", reshard_after_forward=False"), _PLAIN),
}
"""By sync mode: imports, how the model is wrapped, its optimizer. One worker alone needs nothing of the first two."""

_OPTIMIZERS = {
    "sgd": ("torch.optim.SGD", "lr={rate}"),
    "momentum": ("torch.optim.SGD", "lr={rate}, momentum=0.9"),
    "adam": ("torch.optim.Adam", "lr={rate}"),
    "adamw": ("torch.optim.AdamW", "lr={rate}"),
}


def settings_of(row: pd.Series[Any]) -> dict[str, Any]:
    """Give the fields of a point that its row sets otherwise than by default, as JSON values.

    Args:
        row: of `over_launches`; fields of its workload are left out.
    """
    import pandas as pd

    fields = {name: row[name] for name in AXES if name in row.index and pd.notna(row[name])}
    plain = {name: value.item() if hasattr(value, "item") else value for name, value in fields.items()}
    return {name: value for name, value in plain.items() if value != DEFAULTS[name]}


def point_code(row: pd.Series[Any]) -> str:
    """Write a point in Python.

    >>> import pandas as pd
    >>> point_code(pd.Series({"workers": 2, "micro_batch": 4, "sync": "ddp"}))
    'Point(workers=2, micro_batch=4)'
    """
    return f"Point({', '.join(f'{name}={value!r}' for name, value in settings_of(row).items())})"


def training_code(row: pd.Series[Any]) -> str | None:
    """Write the training of a point in plain PyTorch, to be run by `torchrun` where it has several workers.

    Args:
        row: of `over_launches`.

    Returns:
        Lines that run where the names in their comment are defined; None where torch alone does not do what the point
        does: other modes, compression, an exchange after backward.
    """
    import pandas as pd

    values = {**DEFAULTS, **settings_of(row)}
    if row["sync"] not in _MODES or values["compression"] is not None or not values["overlap"]:
        return None
    is_alone, is_gpu, is_own = row["workers"] == 1, row.get("backend") == "nccl", pd.isna(row["optimizer"])
    imports, wrap, make = ([], "", _PLAIN) if is_alone else _MODES[str(row["sync"])]
    has_no_sync = _DDP in imports
    buckets = "" if values["bucket_bytes"] is None else f", bucket_cap_mb={values['bucket_bytes'] / 2**20:g}"
    needed = [
        "model (alike on all workers)" if _FSDP in imports else "model",
        "blocks (its repeated layers)" if _FSDP in imports else "",
        "batches" if is_alone else "batches (this worker's)",
        f"loss_of(model, batch){' that moves a batch to the GPU' if is_gpu else ''}",
        "make_optimizer(parameters)" if is_own else "",
    ]
    head = [
        "" if is_alone else f"# torchrun --nproc-per-node {row['workers']} FILE.py, or as many over all nodes",
        *textwrap.wrap(f"# yours: {', '.join(filter(None, needed))}", _WIDTH, subsequent_indent="# "),
        "from contextlib import nullcontext" if has_no_sync and values["accumulation"] > 1 else "",
        "import os" if is_gpu and not is_alone else "",
        "import torch",
        *imports,
    ]
    body = [
        'torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))' if is_gpu and not is_alone else "",
        "" if is_alone else "torch.distributed.init_process_group()",
        'torch.set_float32_matmul_precision("high")' if values["precision"] == "tf32" else "",
        "model = model.cuda()" if is_gpu else "",
        wrap.replace("{buckets}", buckets),
        "optimizer = make_optimizer(model.parameters())" if is_own else _with_optimizer(make, values),
        *_loop(values, device="cuda" if is_gpu else "cpu", has_no_sync=has_no_sync),
    ]
    return "\n\n".join("\n".join(filter(None, part)) for part in (head, body))


def _with_optimizer(make: str, values: dict[str, Any]) -> str:
    name, options = _OPTIMIZERS[values["optimizer"]]
    return make.format(optimizer=name, options=options.format(rate=values["learning_rate"]))


def _loop(values: dict[str, Any], *, device: str, has_no_sync: bool) -> list[str]:
    """The steps of one worker, a pass each or of several passes."""
    accumulation, samples = values["accumulation"], f"# {values['micro_batch']} samples on each worker"
    loss = [f"loss = loss_of(model, batch){f' / {accumulation}' if accumulation > 1 else ''}"]
    if values["precision"] == "bf16":
        loss = [f'with torch.autocast("{device}", torch.bfloat16):', *_indented(loss)]
    passed, updated = [*loss, "loss.backward()"], ["optimizer.step()", "optimizer.zero_grad()"]
    if accumulation == 1:
        return [f"for batch in batches:  {samples}", *_indented([*passed, *updated])]
    if has_no_sync:
        passed = ["with nullcontext() if is_last else model.no_sync():", *_indented(passed)]
    return [
        f"for number, batch in enumerate(batches):  {samples}",
        *_indented([f"is_last = number % {accumulation} == {accumulation - 1}", *passed]),
        *_indented(["if is_last:", *_indented(updated)]),
    ]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
