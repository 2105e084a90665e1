"""Travel of a workload to other processes: which objects go by name."""

from __future__ import annotations

import copyreg
import sys
from importlib import import_module
from types import ModuleType
from typing import Any


def send_modules_by_name() -> None:
    """Have pickle send loaded modules of classes of their own by name, as it does plain ones.

    With a method of a sweep file go all loaded submodules of `torch` whose names occur in it: a
    field `classes` names `torch.classes`, which is an object of a class of its own. To be called
    right before something is pickled.
    """
    for module in list(sys.modules.values()):
        kind = type(module)
        is_plain = kind is ModuleType or not issubclass(kind, ModuleType)
        if not is_plain and kind.__reduce__ is object.__reduce__:
            copyreg.pickle(kind, _by_name)


def _by_name(module: ModuleType) -> Any:
    if sys.modules.get(module.__name__) is module:
        return import_module, (module.__name__,)
    return module.__reduce_ex__(2)
