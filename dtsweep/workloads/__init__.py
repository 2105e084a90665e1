"""Workloads: the three methods of one, and ours.

Ranks run the methods, which import torch and transformers; at module level only `decoder` imports
torch. In reading order:

    fields          checks of a workload's fields
    samples         samples by their number, kept on the device
    datasets        batches by `batch` or `dataset`, and moves of them to a device
    cifar10         a small convolutional network
    decoder         the model of `gpt`, imported when it is built
    gpt             a small decoder language model
    transformers    well-known models from their configurations
    own             training loops of the user, as they are written
    libraries       loops of Transformers, Lightning and Accelerate

A workload is a frozen dataclass. Its fields are JSON values, are stored and are part of a trial's
identity; the scalar ones can be swept as `workload.<field>`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from dtsweep.workloads.cifar10 import Cifar10Cnn
from dtsweep.workloads.gpt import Gpt
from dtsweep.workloads.libraries import Accelerate, HuggingFace, Lightning
from dtsweep.workloads.own import Loop, Script
from dtsweep.workloads.transformers import Transformers

if TYPE_CHECKING:
    import torch
    from torch import nn

__all__ = [
    "WORKLOADS",
    "Accelerate",
    "Cifar10Cnn",
    "Gpt",
    "HuggingFace",
    "Lightning",
    "Loop",
    "Script",
    "Transformers",
    "Workload",
]


class Workload(Protocol):
    """Workload of a trial: any dataclass with these three methods.

    Optional, looked up by name, and left out or None where they don't apply:

    - `optimizer(parameters, learning_rate) -> torch.optim.Optimizer`: used instead of the point's
      `optimizer`.
    - `tokens_per_sample: int`: tokens that one sample trains on; the results then have
      `tokens_per_s`.
    - `serve(model, batch) -> Tensor | Iterator[Tensor]`: the output of a batch, or one for each
      token that it makes: what `Sweep(kind="inference")` measures.
    - `tokens_per_answer: int`: tokens of such an output of a sample, for `tokens_per_s`.
    - `flops_per_sample: float`: FLOPs of a forward and backward pass on one sample; else they are
      counted.
    - `ddp_options: dict[str, Any]`: more arguments for `DistributedDataParallel`, for example
      `{"find_unused_parameters": True}`.
    - `blocks(model) -> Sequence[nn.Module]`: the modules that a mode with sharded parameters shards
      one by one; else those that the model repeats.
    - `unread_fields: Collection[str]`: names of fields that this model does not read; they are
      stored as null, and two workloads that differ in them alone are one.
    - `weight(batch) -> float | Tensor`: what the batch's mean loss counts in the mean over all
      workers and passes, for example its number of tokens that have a target; else all count
      alike.
    - `exchanges: bool`: True if the model or its optimizer sends data to other workers by itself;
      else a trial that sends more than its mode does is `wrong_traffic`.
    - `prepare(model, job) -> (model, optimizer)`: makes the model parallel, for `sync="own"`, which
      is then the default. `job` is the trial as one rank sees it, with `job.point`, `job.device`
      and `job.mesh()`. Needs `own_mode`.
    - `own_mode: OwnMode`: what that trains: its semantics, and the workers that share a model.
    - `train_step(model, optimizer, batches, mark) -> Tensor | None`: takes a step of `sync="own"`
      in place of passes by `loss` and an update; then `loss` may be missing. It may call
      `mark(phase)` at the end of each phase.
    - `dataset() -> Dataset`: in place of `batch`, a map-style dataset of torch. Sample i is item
      i modulo its length; `collate(items)` makes a batch on the CPU, else torch's
      `default_collate`.
    - `samples_in(batch) -> int`: how many samples a batch has, where that is not the first
      dimension of its tensors.
    """

    def build(self) -> nn.Module:
        """Make the model on the CPU, with initial weights from torch's current seed."""
        ...

    def batch(self, samples: range, device: torch.device) -> Any:
        """Give the samples with these numbers on `device`.

        Numbers are global and grow without end: one number is one sample on every rank and in every
        world of a seed. The ranks ask for disjoint ranges, so each reads its own share. It is
        inside the timed step, so what can be done once is done in the first call.
        """
        ...

    def loss(self, model: nn.Module, batch: Any) -> torch.Tensor:
        """Run the model forward and return the mean loss over the batch, a scalar.

        By `model(...)` itself: a method or a module inside it goes round what exchanges gradients
        (`wrong_gradient`). A model that has its training step in a method is wrapped in one whose
        `forward` calls that.
        """
        ...


WORKLOADS: dict[str, type[Workload]] = {
    "Cifar10Cnn": Cifar10Cnn,
    "Gpt": Gpt,
    "Transformers": Transformers,
}
"""Every workload that comes with dtsweep, by name."""
