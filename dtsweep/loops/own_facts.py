"""Facts of a user's training loop, read off its objects: its model, wrapper and precision."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.distributed import get_process_group_ranks
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel
from torch.nn.modules.module import register_module_forward_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dtsweep.metrics.product import model_digest
from dtsweep.sync.shard_policies import param_groups_of

_NAMES = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float64: "fp64",
}
"""Names of types of numbers, as in the column `precision`."""

_WRAPPERS = (
    (DistributedDataParallel, "DistributedDataParallel"),
    (FSDPModule, "fully_shard"),
    (FullyShardedDataParallel, "FullyShardedDataParallel"),
)
"""Wrappers that are known, with their names."""

NO_MODEL = "no module that was called has the optimizer's parameters"
_NO_NUMBERS = "no module with parameters was seen to compute"
COMPILED = "autocast inside a compiled model can't be seen"
"""Reasons why facts are unknown."""

_COMPILED = "_orig_mod"
"""Name of the module in one that `torch.compile` made."""


class ForwardWatch:
    """The modules that are called in a step, and the types in which they compute.

    Of compiled modules only the outermost is seen. Hooks of modules do not compile them again.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._called: dict[int, nn.Module] = {}
        self._elements: Counter[torch.dtype] = Counter()
        self._is_autocast = False

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch all modules of this process."""
        handle = register_module_forward_hook(self._note)
        try:
            yield
        finally:
            handle.remove()

    def _note(self, module: nn.Module, *_: Any) -> None:
        # The last call counts: modules come after those in them.
        self._called.pop(id(module), None)
        self._called[id(module)] = module
        parameters = module._parameters.values()
        if _COMPILED in module._modules:
            # The modules in it are not seen.
            parameters = dict(module.named_parameters()).values()
        for parameter in parameters:
            if parameter is not None and parameter.is_floating_point():
                self._elements[self._computed_in(parameter)] += parameter.numel()

    def _computed_in(self, parameter: nn.Parameter) -> torch.dtype:
        """Type of products with a parameter."""
        device = parameter.device.type
        if not torch.is_autocast_enabled(device):
            return parameter.dtype
        self._is_autocast = True
        return torch.get_autocast_dtype(device)

    def model_of(self, optimizer: Optimizer) -> nn.Module | None:
        """The outermost module that was called with the most parameters of an optimizer."""
        wanted = {id(p) for group in optimizer.param_groups for p in group["params"]}
        examined: set[int] = set()
        model, most = None, 0
        for module in reversed(self._called.values()):
            if id(module) in examined:
                continue
            examined.update(map(id, module.modules()))
            count = sum(id(parameter) in wanted for parameter in module.parameters())
            if count > most:
                model, most = module, count
        return model

    def parameters(self) -> dict[int, nn.Parameter]:
        """Parameters of the modules that were called, by identity."""
        modules = self._called.values()
        return {id(p): p for module in modules for p in module.parameters()}

    def has_called(self, module: nn.Module) -> bool:
        """True if a module was called where that can be seen."""
        return id(module) in self._called

    def wrapped(self) -> list[nn.Module]:
        """The modules with a known wrapper that were called, or are in one that was."""
        modules = {
            id(inner): inner for module in self._called.values() for inner in module.modules()
        }
        kinds = tuple(kind for kind, _ in _WRAPPERS)
        return [module for module in modules.values() if isinstance(module, kinds)]

    def facts(self, optimizers: Sequence[Optimizer]) -> dict[str, Any]:
        """Facts that were seen in a step.

        Args:
            optimizers: that stepped; the first is the one whose steps count.

        Returns:
            `parameters`, `model_digest`, `loop_precision`, `loop_wrapper` and `loop_reason` of
            `Measured`.
        """
        model = self.model_of(optimizers[0])
        parameters = {
            id(p): p for one in optimizers for group in one.param_groups for p in group["params"]
        }
        if model is None:
            return {"parameters": _elements(parameters.values()), "loop_reason": NO_MODEL}
        flat = _flat_parameters(model)
        if flat:
            # What the optimizer has are views of its rank's shards.
            parameters = {id(p): p for p in flat}
        else:
            parameters |= {id(p): p for p in model.parameters()}
        precision, reason = self._precision(model)
        return {
            "parameters": _elements(parameters.values()),
            "model_digest": None if flat else _digest_of(parameters.values()),
            "loop_precision": precision,
            "loop_wrapper": _wrapper_of(model),
            "loop_reason": reason,
        }

    def _precision(self, model: nn.Module) -> tuple[str | None, str | None]:
        """Precision of the most parameters, or None and the reason."""
        if not self._elements:
            return None, _NO_NUMBERS
        (kind, _), *_ = self._elements.most_common(1)
        if kind == torch.float32 and _is_compiled(model) and not self._is_autocast:
            return None, COMPILED
        device = next(model.parameters()).device.type
        tf32 = kind == torch.float32 and torch.get_float32_matmul_precision() != "highest"
        if device == "cuda" and tf32:
            return "tf32", None
        return _NAMES.get(kind, str(kind).removeprefix("torch.")), None

    def clear(self) -> None:
        """Hold no module any more."""
        self._called.clear()


def data_ranks(wrapped: Iterable[nn.Module]) -> list[int] | None:
    """Ranks with which this one exchanges gradients, by known wrappers; None without one."""
    ranks: set[int] = set()
    for module in wrapped:
        if isinstance(module, FSDPModule):
            for group in param_groups_of(module):
                ranks.update(group.mesh_info.mesh.mesh.flatten().tolist())
        else:
            # FSDP1 has two groups where it shards within a node and copies between nodes.
            groups: list[Any] = [module.process_group, getattr(module, "_inter_node_pg", None)]
            for group in filter(None, groups):
                ranks.update(get_process_group_ranks(group))
    return sorted(ranks) or None


def _flat_parameters(model: nn.Module) -> list[torch.Tensor]:
    """The parameters into which FSDP1 has put those of a model; empty without it."""
    modules = FullyShardedDataParallel.fsdp_modules(model)
    return [module._flat_param for module in modules if module._flat_param is not None]


def _is_compiled(model: nn.Module) -> bool:
    """True if a module in it is compiled by `torch.compile`, or by its `compile`."""
    return any(
        _COMPILED in module._modules or module._compiled_call_impl is not None
        for module in model.modules()
    )


def _wrapper_of(model: nn.Module) -> str:
    """The wrappers of a model that are known; of one with a communication hook its name too.

    >>> _wrapper_of(nn.Linear(4, 1))
    'none'
    """
    names = []
    for kind, name in _WRAPPERS:
        modules = [module for module in model.modules() if isinstance(module, kind)]
        if modules:
            names.append(name)
            names += [f"with {hook}" for hook in hooks_of(modules)]
    return " ".join(names) or "none"


def _digest_of(parameters: Iterable[torch.Tensor]) -> str:
    """Digest of the shapes of parameters; of sharded ones the whole shapes."""
    shapes = [list(parameter.shape) for parameter in parameters]
    return model_digest(shapes, flops_per_sample=None, tokens_per_sample=None)


def hooks_of(modules: Sequence[nn.Module]) -> list[str]:
    """Names of the communication hooks that the user has registered with DDP."""
    hooks = [hook for module in modules for hook, _ in getattr(module, "_comm_hooks", ())]
    return sorted({getattr(hook, "__name__", type(hook).__name__) for hook in hooks})


def _elements(parameters: Iterable[torch.Tensor]) -> int:
    """Elements of parameters of the whole model.

    A flat parameter of FSDP1 counts with the shards of all ranks.
    """
    return sum(getattr(p, "_unpadded_unsharded_size", p.shape).numel() for p in parameters)
