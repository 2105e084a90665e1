"""The last exchanges of a rank, as torch's flight recorder has them; written at a hang.

The recorder keeps the last 2000 collectives and messages of a process, unless
`TORCH_FR_BUFFER_SIZE` (`TORCH_NCCL_TRACE_BUFFER_SIZE` in older torch) says otherwise.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from torch import distributed
from torch._C import _distributed_c10d

SHOWN = 5
"""Last exchanges of each group that are written."""


def recorded() -> Any:
    """The dump of this process's recorder; NCCL has one of its own."""
    if distributed.get_backend() == "nccl":
        return json.loads(_distributed_c10d._dump_nccl_trace_json())  # type: ignore[attr-defined]  # missing in torch's stub
    return json.loads(_distributed_c10d._dump_fr_trace_json())  # type: ignore[attr-defined]  # missing in torch's stub


def last_exchanges(dump: Mapping[str, Any], begun: Mapping[str, int]) -> list[str]:
    """One line for each group, followed by its last exchanges.

    Args:
        dump: of the recorder.
        begun: number of exchanges that this rank has begun, by the name of the group.
    """
    lines = []
    for name, count in begun.items():
        lines.append(f"group {name}: {count} exchanges begun; the last of them:")
        entries = [entry for entry in dump.get("entries", ()) if entry["process_group"][0] == name]
        if not entries:
            lines.append("  none recorded")
        lines += [f"  {_described(entry)}" for entry in entries[-SHOWN:]]
    return lines


def _described(entry: Mapping[str, Any]) -> str:
    """One exchange: its number in its group, name, shapes and types of what it sends, and state."""
    number = entry["collective_seq_id"]
    if entry["is_p2p"]:
        number = entry["p2p_seq_id"]
    tensors = ", ".join(
        f"{kind}{shape}"
        for kind, shape in zip(entry["input_dtypes"], entry["input_sizes"], strict=False)
    )
    state = entry["state"]
    # gloo marks no end; what is retired is waited for no more.
    if entry["retired"]:
        state = "ended"
    return f"{number} {entry['profiling_name']} of {tensors or 'nothing'}: {state}"
