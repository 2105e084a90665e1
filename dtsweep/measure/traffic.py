"""Bytes and messages that a rank sends, from the tensors that are handed to its process groups."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import torch
from torch.distributed import ProcessGroup, distributed_c10d
from torch.utils._python_dispatch import TorchDispatchMode

SHARES: Mapping[str, Callable[[int], Fraction]] = {
    "all_reduce": lambda ranks: Fraction(2 * (ranks - 1), ranks),
    "all_gather": lambda ranks: Fraction(ranks - 1),
    **dict.fromkeys(
        ("reduce_scatter", "broadcast", "reduce", "gather", "scatter", "all_to_all"),
        lambda ranks: Fraction(ranks - 1, ranks),
    ),
    "send": lambda _: Fraction(1),
    "nothing": lambda _: Fraction(0),
}
"""Bytes that a rank sends, of the bytes that it hands over, in a ring of so many ranks.

For broadcast, reduce and gather it is the mean over the ranks; an all-to-all has equal parts.
"""

SHARES_OF_BACKEND: Mapping[tuple[str, str], Callable[[int], Fraction]] = {
    ("gloo", "reduce_scatter"): SHARES["all_reduce"],
    ("gloo", "reduce"): lambda _: Fraction(1),
}
"""Factor by which a backend sends more, as the kernel counts it: gloo keeps part of the sums."""

_OPERATORS: Mapping[str, Sequence[str]] = {
    "all_reduce": (
        "allreduce_",
        "allreduce_coalesced_",
        "all_reduce",
        "all_reduce_",
        "all_reduce_coalesced",
        "all_reduce_coalesced_",
    ),
    "all_gather": (
        "allgather_",
        "_allgather_base_",
        "allgather_coalesced_",
        "allgather_into_tensor_coalesced_",
        "all_gather_into_tensor",
        "all_gather_into_tensor_out",
        "all_gather_into_tensor_coalesced",
    ),
    "reduce_scatter": (
        "reduce_scatter_",
        "_reduce_scatter_base_",
        "reduce_scatter_tensor_coalesced_",
        "reduce_scatter_tensor",
        "reduce_scatter_tensor_out",
        "reduce_scatter_tensor_coalesced",
    ),
    "broadcast": ("broadcast_", "broadcast"),
    "all_to_all": ("alltoall_", "alltoall_base_", "all_to_all_single"),
    "reduce": ("reduce_",),
    "gather": ("gather_",),
    "scatter": ("scatter_",),
    "send": ("send", "isend"),
    "nothing": (
        "recv_",
        "recv_any_source_",
        "irecv",
        "wait_tensor",
        "_wrap_tensor_autograd",
        "barrier",
        "monitored_barrier_",
        "check_for_nan",
    ),
}
"""Torch's operators, by their effect.

Those of `c10d` are called by its functions, DDP's reducer and FSDP2; the functional ones by
`DTensor` and compiled code.
"""

OPERATIONS = {name: effect for effect, names in _OPERATORS.items() for name in names}
"""Effect of each operator."""

_NAMESPACES = ("c10d", "_c10d_functional", "symm_mem")

_TENSOR_ARGUMENTS = (
    "input_tensors",
    "input_tensor",
    "input_list",
    "inputs",
    "input",
    "tensors",
    "tensor",
)
"""Names under which operators take what a rank hands over."""


class Counting(TorchDispatchMode):
    """Counts what its rank sends, as a context around steps.

    It works on CPU and GPU, in forward and backward.
    """

    supports_higher_order_operators = True

    def __init__(self) -> None:
        """Begin at nothing."""
        super().__init__()  # type: ignore[no-untyped-call]  # torch's own
        self._bytes = Fraction(0)
        self._messages = 0
        self.unknown: list[str] = []
        """Calls whose bytes can't be counted."""

    @property
    def bytes_sent(self) -> Fraction | None:
        """Payload sent so far, without headers; None where some of it can't be counted."""
        if self.unknown:
            return None
        return self._bytes

    @property
    def messages_sent(self) -> int | None:
        """Calls to a process group that sent data: collectives and point-to-point sends."""
        if self.unknown:
            return None
        return self._messages

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True if compiled code stays compiled beneath it, if only exchanges are intercepted."""
        return True

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Count an exchange, and have it done."""
        # Classes of tensors, such as DTensor, exchange by plain ones: those come here again.
        if any(kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for kind in types):
            return NotImplemented
        if getattr(func, "namespace", None) in _NAMESPACES:
            self._count(
                func,
                {a.name: value for a, value in zip(func._schema.arguments, args, strict=False)},
            )
        return func(*args, **(kwargs or {}))

    def _count(self, operator: Any, arguments: Mapping[str, Any]) -> None:
        name = operator._schema.name.partition("::")[2]
        handed_over = next((arguments[key] for key in _TENSOR_ARGUMENTS if key in arguments), ())
        tensors = list(_tensors_in(handed_over))
        if name not in OPERATIONS or any(tensor.layout != torch.strided for tensor in tensors):
            self.unknown.append(f"{name} of sparse tensors" if name in OPERATIONS else name)
            return
        kind = OPERATIONS[name]
        if kind == "nothing" or not tensors:
            return
        sent = share_sent(kind, _group_of(arguments), tensors[0].device) * sum(
            tensor.nbytes for tensor in tensors
        )
        self._bytes += sent
        self._messages += sent > 0


def share_sent(kind: str, group: ProcessGroup, device: torch.device) -> Fraction:
    """Bytes that a rank sends, of those it hands over, by the group's backend for a device."""
    ranks = group.size()
    backend = group._get_backend(device).name()
    if ranks > 1:
        return SHARES_OF_BACKEND.get((backend, kind), SHARES[kind])(ranks)
    return Fraction(0)


def _group_of(arguments: Mapping[str, Any]) -> ProcessGroup:
    group = arguments.get("process_group", arguments.get("group_name"))
    if isinstance(group, str):
        return distributed_c10d._resolve_process_group(group)  # type: ignore[attr-defined, arg-type]  # a `str` by another name
    if isinstance(group, ProcessGroup):
        return group
    return ProcessGroup.unbox(group)


def _tensors_in(nested: Any) -> Iterator[torch.Tensor]:
    if isinstance(nested, torch.Tensor):
        yield nested
    else:
        for item in nested:
            yield from _tensors_in(item)
