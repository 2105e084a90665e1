"""The training of a point in plain PyTorch, where torch alone does what the point does.

`EXPRESSED`, and `expresses` of each sync mode, are the axes that a program has lines for. Each
other axis that is not at its default is named, in a comment or in the reason for no program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.report.code import comment, on_environment, on_workload, settings_of
from dtsweep.sweep.compressions import COMPRESSION_FIELDS
from dtsweep.sweep.mode_info import ModeInfo
from dtsweep.sweep.modes import AS_WRITTEN, OWN, mode_in_results
from dtsweep.sweep.point import AXES, DEFAULTS

if TYPE_CHECKING:
    import pandas as pd

EXPRESSED = (
    *("workers", "micro_batch", "accumulation"),
    *("optimizer", "learning_rate", "clip_norm", "precision"),
)
"""Axes that every program expresses."""

INDISPENSABLE = ("sync", "compression", "overlap")
"""Axes that say what is exchanged; a program has to express all of them."""

EXCHANGE = ("sync", "overlap", "bucket_bytes", "node_size")
"""Axes that say how gradients are exchanged."""

_DDP = "from torch.nn.parallel import DistributedDataParallel"
_ZERO = "from torch.distributed.optim import ZeroRedundancyOptimizer"
_FSDP = "from torch.distributed.fsdp import fully_shard"
_WRAP = "model = DistributedDataParallel(model{buckets})"
_SHARD = """\
for block in blocks:
    fully_shard(block{reshard})
fully_shard(model, reshard_after_forward=False)"""
_KEEP = ", reshard_after_forward=False"
_PLAIN = "optimizer = {optimizer}(model.parameters(), {options})"
_OWN = "optimizer = make_optimizer(model.parameters(), {rate})"
_SHARDED = """\
optimizer = ZeroRedundancyOptimizer(
    model.parameters(), {optimizer}, {options}
)"""
_SHARDED_OWN = """\
optimizer = ZeroRedundancyOptimizer(
    model.parameters(), lambda parameters, **_: make_optimizer(parameters, {rate})
)"""


@dataclass(frozen=True, kw_only=True)
class ModeLines:
    """The lines of a program that depend on its sync mode."""

    imports: tuple[str, ...]

    wrap: str
    """Lines that wrap the model; `{buckets}` stands for DDP's argument of the bucket size."""

    optimizer: str = _PLAIN
    own_optimizer: str = _OWN
    """For a workload that makes its optimizer."""

    expresses: tuple[str, ...] = ("sync",)
    """Axes that these lines express."""


PROGRAMS: Mapping[str, ModeLines] = {
    "ddp": ModeLines(imports=(_DDP,), wrap=_WRAP, expresses=("sync", "bucket_bytes")),
    "zero1": ModeLines(
        imports=(_ZERO, _DDP),
        wrap=_WRAP,
        optimizer=_SHARDED,
        own_optimizer=_SHARDED_OWN,
        expresses=("sync", "bucket_bytes"),
    ),
    "fsdp": ModeLines(imports=(_FSDP,), wrap=_SHARD.format(reshard="")),
    "fsdp_grad": ModeLines(imports=(_FSDP,), wrap=_SHARD.format(reshard=_KEEP)),
}
"""Sync modes that torch alone has."""

_OPTIMIZERS = {
    "sgd": ("torch.optim.SGD", "lr={rate}"),
    "momentum": ("torch.optim.SGD", "lr={rate}, momentum=0.9"),
    "adam": ("torch.optim.Adam", "lr={rate}"),
    "adamw": ("torch.optim.AdamW", "lr={rate}"),
}


@dataclass(frozen=True, kw_only=True)
class _Subject:
    """A point as its program depends on it."""

    settings: Mapping[str, Any]
    """Axes that are not at their defaults, and `environment`."""

    mode: ModeLines
    is_gpu: bool
    has_own_optimizer: bool
    """True if the workload makes its optimizer."""

    is_weighted: bool
    """True if the workload weighs its batches."""

    @property
    def values(self) -> Mapping[str, Any]:
        """All axes."""
        return {**DEFAULTS, **self.settings}

    @property
    def is_alone(self) -> bool:
        """True if there is one worker, which exchanges nothing."""
        return bool(self.values["workers"] == 1)

    @property
    def shards(self) -> bool:
        """True if its model is divided among the workers."""
        return not self.is_alone and _FSDP in self.mode.imports

    @property
    def skips_exchange(self) -> bool:
        """True if all passes of a step but the last are without DDP's exchange."""
        return not self.is_alone and _DDP in self.mode.imports and self.values["accumulation"] > 1


def training_code(row: pd.Series[Any]) -> str | None:
    """Write the training of a point in plain PyTorch, for `torchrun` if there are several workers.

    Args:
        row: of `over_launches`.

    Returns:
        Lines that run after the definitions that a comment asks for. None if torch alone does not
        do what the point does; `why_no_training` names the axes.
    """
    if why_no_training(row):
        return None
    subject = _subject_of(row)
    head = [*on_environment(row), *_on_definitions(subject, row), *_on_axes(subject)]
    parts = ([*head, *_imports(subject)], [*_setup(subject), *_loop(subject)])
    return "\n\n".join("\n".join(part) for part in parts)


def why_no_training(row: pd.Series[Any]) -> str | None:
    """Name the settings of a point that torch alone does not have; None if there is a program.

    >>> import pandas as pd
    >>> why_no_training(pd.Series({"workers": 2, "sync": "local_sgd", "sync_period": 8}))
    "torch alone does not have sync='local_sgd', sync_period=8"
    """
    settings = settings_of(row)
    if settings.get("sync") == AS_WRITTEN:
        return f"sync='{AS_WRITTEN}': the training loop is your own, and runs as it is written"
    if settings.get("sync") == OWN:
        return f"sync='{OWN}': prepare of the workload makes the model parallel by itself"
    unexpressed = _unexpressed(settings)
    if not any(name in unexpressed for name in INDISPENSABLE):
        return None
    needed = {*INDISPENSABLE, *COMPRESSION_FIELDS, *_mode_of(settings).reads}
    lacking = [f"{name}={value!r}" for name, value in unexpressed.items() if name in needed]
    unneeded = [f"{name}={value!r}" for name, value in unexpressed.items() if name not in needed]
    reason = f"torch alone does not have {', '.join(lacking)}"
    if unneeded:
        reason += f"; not expressed either: {', '.join(unneeded)}"
    return reason


def _mode_of(settings: Mapping[str, Any]) -> ModeInfo:
    return mode_in_results(settings.get("sync", DEFAULTS["sync"]))


def _unneeded(settings: Mapping[str, Any]) -> list[str]:
    """List the axes of the exchange that one worker with exact updates does not need."""
    values = {**DEFAULTS, **settings}
    mode = _mode_of(settings)
    is_exact = (
        values["compression"] == DEFAULTS["compression"] and mode.semantics(values) == "exact"
    )
    if values["workers"] > 1 or not is_exact:
        return []
    return [name for name in settings if name in EXCHANGE or name in mode.reads]


def _unexpressed(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Pick the axes for which a program has no lines."""
    mode = PROGRAMS.get(settings.get("sync", DEFAULTS["sync"]))
    expressed = {*EXPRESSED, *_unneeded(settings)}
    if mode:
        expressed.update(mode.expresses)
    return {name: settings[name] for name in AXES if name in settings and name not in expressed}


def _subject_of(row: pd.Series[Any]) -> _Subject:
    import pandas as pd

    settings = settings_of(row)
    return _Subject(
        settings=settings,
        # One worker uses no lines of its mode.
        mode=PROGRAMS.get(settings.get("sync", DEFAULTS["sync"]), PROGRAMS["ddp"]),
        is_gpu=row.get("backend") == "nccl",
        has_own_optimizer=bool(pd.isna(row["optimizer"])),
        is_weighted=_is_true(row.get("is_weighted")),
    )


def _is_true(value: Any) -> bool:
    """True for a true value; None and missing ones are not."""
    import pandas as pd

    return bool(pd.notna(value)) and bool(value)


def _on_definitions(subject: _Subject, row: pd.Series[Any]) -> list[str]:
    """Comments on the command, on the names that have to be defined, and on the workload."""
    needed = ["model (the same on all workers)", "blocks (its repeated layers)"]
    if not subject.shards:
        needed = ["model"]
    needed.append("batches" if subject.is_alone else "batches (this worker's)")
    moving = ""
    if subject.is_gpu:
        moving = " that moves a batch to the GPU"
    needed.append(f"loss_of(model, batch){moving}")
    if subject.has_own_optimizer:
        needed.append("make_optimizer(parameters, learning_rate)")
    lines = [comment(f"yours: {', '.join(needed)}"), *on_workload(row)]
    if subject.is_weighted:
        lines.append(comment("not expressed here: weight(batch) of the workload"))
    if subject.is_alone:
        return lines
    workers = subject.values["workers"]
    return [f"# torchrun --nproc-per-node {workers} FILE.py, or as many over all nodes", *lines]


def _on_axes(subject: _Subject) -> list[str]:
    """Comments on the axes that the program does not express, one each."""
    lines = []
    for name in _unneeded(subject.settings):
        setting = f"{name}={subject.settings[name]!r}"
        lines.append(comment(f"one worker exchanges nothing: {setting} is not needed"))
    for name, value in _unexpressed(subject.settings).items():
        lines.append(comment(f"not expressed here: {name}={value!r}"))
    return lines


def _imports(subject: _Subject) -> list[str]:
    lines = []
    if subject.skips_exchange:
        lines.append("from contextlib import nullcontext")
    if subject.is_gpu and not subject.is_alone:
        lines.append("import os")
    lines.append("import torch")
    if not subject.is_alone:
        lines += subject.mode.imports
    return lines


def _setup(subject: _Subject) -> list[str]:
    """Lines from the process group to the optimizer."""
    lines, values = [], subject.values
    if subject.is_gpu and not subject.is_alone:
        lines.append('torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))')
    if not subject.is_alone:
        lines.append("torch.distributed.init_process_group()")
    if values["precision"] == "tf32":
        lines.append('torch.set_float32_matmul_precision("high")')
    elif subject.is_gpu:
        # torch's default lets convolutions round to TensorFloat-32; dtsweep's trials did not.
        lines.append("torch.backends.cudnn.allow_tf32 = False")
    if subject.is_gpu:
        lines.append("model = model.cuda()")
    if not subject.is_alone:
        size = values["bucket_bytes"]
        buckets = ""
        if size is not None:
            buckets = f", bucket_cap_mb={size} / 2**20"
        lines.append(subject.mode.wrap.replace("{buckets}", buckets))
    return [*lines, _optimizer(subject)]


def _optimizer(subject: _Subject) -> str:
    rate = subject.values["learning_rate"]
    if subject.has_own_optimizer:
        if subject.is_alone:
            line = _OWN
        else:
            line = subject.mode.own_optimizer
        return line.format(rate=rate)
    name, options = _OPTIMIZERS[subject.values["optimizer"]]
    if subject.is_alone:
        line = _PLAIN
    else:
        line = subject.mode.optimizer
    return line.format(optimizer=name, options=options.format(rate=rate))


def _loop(subject: _Subject) -> list[str]:
    """The steps of one worker, of one pass or several."""
    accumulation = subject.values["accumulation"]
    samples = f"# {subject.values['micro_batch']} samples on each worker"
    share = ""
    if accumulation > 1:
        share = f" / {accumulation}"
    passes = [f"loss = loss_of(model, batch){share}"]
    if subject.values["precision"] == "bf16":
        device = "cpu"
        if subject.is_gpu:
            device = "cuda"
        passes = [f'with torch.autocast("{device}", torch.bfloat16):', *_indented(passes)]
    passes.append("loss.backward()")
    update = ["optimizer.step()", "optimizer.zero_grad()"]
    limit = subject.values["clip_norm"]
    if limit is not None:
        update.insert(0, f"torch.nn.utils.clip_grad_norm_(model.parameters(), {limit})")
    if accumulation == 1:
        return [f"for batch in batches:  {samples}", *_indented([*passes, *update])]
    if subject.skips_exchange:
        passes = ["with nullcontext() if is_last else model.no_sync():", *_indented(passes)]
    return [
        f"for number, batch in enumerate(batches):  {samples}",
        f"    is_last = number % {accumulation} == {accumulation - 1}",
        *_indented(passes),
        "    if is_last:",
        *_indented(_indented(update)),
    ]


def _indented(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]
