"""Settings of Python and torch that training loops change, beyond those of every workload.

`hardware.process_state` and `hardware.backend_flags` have the others. Libraries that a loop imports
set some of these when they are loaded, so that only a trial of a loop restores them.
"""

from __future__ import annotations

import builtins
import gc
import logging
import multiprocessing
import resource
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, MutableMapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers

from dtsweep.errors import in_user_code
from dtsweep.hardware.process_state import Setting

CONFIGURATIONS = ("torch._dynamo.config", "torch._inductor.config", "torch._functorch.config")
"""Modules with the settings of torch's compiler, which are loaded when they are needed."""


def settings() -> Iterator[Setting]:
    """Yield the settings of this process that can be read, compared and set."""
    yield _values("sys.argv", sys.argv)
    yield _values("warnings filters", warnings.filters, then=warnings._filters_mutated)  # type: ignore[attr-defined]  # missing in typeshed
    yield from _attributes(warnings, "showwarning")
    yield from _attributes(sys, "excepthook", "unraisablehook", "displayhook", "breakpointhook")
    yield from _attributes(threading, "excepthook")
    yield Setting("trace function", sys.gettrace, sys.settrace)
    yield Setting("profile function", sys.getprofile, sys.setprofile)
    yield _entries("functions of Python", vars(builtins))
    yield Setting("start method of processes", _start_method, _put_start_method)
    yield Setting("errors of NumPy", np.geterr, lambda before: np.seterr(**before))
    yield from _limits()
    yield from _settings_of_torch()


def _settings_of_torch() -> Iterator[Setting]:
    # Dictionaries: a hook of all modules or optimizers would run in every later trial.
    for owner in (modules, optimizers):
        for name, value in vars(owner).items():
            if name.startswith("_global_") and isinstance(value, dict):
                yield _entries(f"hooks of all modules and optimizers ({name})", value)
    yield Setting(
        "sharing of tensors",
        torch.multiprocessing.get_sharing_strategy,
        torch.multiprocessing.set_sharing_strategy,
    )
    yield Setting("warnings of torch", torch.is_warn_always_enabled, torch.set_warn_always)
    yield Setting(
        "debug level of torch.distributed",
        distributed.get_debug_level,  # type: ignore[attr-defined]  # missing in torch's stub
        distributed.set_debug_level,  # type: ignore[attr-defined]  # missing in torch's stub
    )
    if torch.cuda.is_initialized():
        yield Setting("GPU of this thread", torch.cuda.current_device, torch.cuda.set_device)
        yield Setting("stream of this thread", torch.cuda.current_stream, torch.cuda.set_stream)
        yield Setting(
            "part of the GPU's memory",
            torch.cuda.get_per_process_memory_fraction,
            torch.cuda.set_per_process_memory_fraction,
        )
    for name in CONFIGURATIONS:
        yield Setting(f"{name}", partial(_configuration, name), partial(_put_configuration, name))


def _attributes(owner: Any, *names: str) -> Iterator[Setting]:
    for name in names:
        label = f"{owner.__name__}.{name}"
        yield Setting(label, partial(getattr, owner, name), partial(setattr, owner, name))


def _values(name: str, values: Any, *, then: Callable[[], object] = lambda: None) -> Setting:
    """A list that others may hold, too."""

    def put(before: list[Any]) -> None:
        values[:] = before
        then()

    return Setting(name, lambda: list(values), put)


def _entries(name: str, entries: MutableMapping[Any, Any]) -> Setting:
    """A dictionary that others may hold, too."""

    def put(before: dict[Any, Any]) -> None:
        for key in entries.keys() - before.keys():
            del entries[key]
        entries.update(before)

    return Setting(name, lambda: dict(entries), put)


def _start_method() -> str | None:
    return multiprocessing.get_start_method(allow_none=True)


def _put_start_method(method: str | None) -> None:
    # A script sets it once per process, and fails where it is set.
    multiprocessing.set_start_method(method, force=True)


def _limits() -> Iterator[Setting]:
    """Limits of this process, of which a loop can lower the hard ones for good."""
    for name in ("NOFILE", "AS", "STACK", "CORE", "MEMLOCK", "NPROC"):
        number = getattr(resource, f"RLIMIT_{name}")
        yield Setting(
            f"limit {name}",
            partial(resource.getrlimit, number),
            partial(resource.setrlimit, number),
        )


def _configuration(name: str) -> dict[str, Any]:
    """Settings of a part of torch's compiler that differ from their defaults; empty if unloaded."""
    config = sys.modules.get(name)
    if config is None:
        return {}
    values = {}
    for setting in config._config:
        if not config._is_default(setting):
            values[setting] = getattr(config, setting)
    return values


def _put_configuration(name: str, before: dict[str, Any]) -> None:
    config: Any = sys.modules[name]
    for setting in _configuration(name).keys() - before.keys():
        setattr(config, setting, config._config[setting].default)
    for setting, value in before.items():
        setattr(config, setting, value)


class Loggers:
    """Levels and handlers of all loggers of this process."""

    def __init__(self) -> None:
        """Read them."""
        self._disabled_up_to = logging.root.manager.disable
        self._before = {name: _of_logger(logger) for name, logger in _loggers()}

    def restore(self) -> None:
        """Set what has changed; loggers that a library made when it was loaded stay."""
        logging.disable(self._disabled_up_to)
        for name, logger in _loggers():
            before = self._before.get(name)
            if before is None and _is_of_a_library(name):
                continue
            level, handlers, propagates, is_disabled = before or (logging.NOTSET, [], True, False)
            for handler in [*logger.handlers]:
                if handler not in handlers:
                    logger.removeHandler(handler)
                    handler.close()
            for handler in handlers:
                logger.addHandler(handler)
            logger.setLevel(level)
            logger.propagate, logger.disabled = propagates, is_disabled


def _loggers() -> list[tuple[str, logging.Logger]]:
    loggers = [("", logging.getLogger())]
    for name, logger in logging.root.manager.loggerDict.items():
        if isinstance(logger, logging.Logger):
            loggers.append((name, logger))
    return loggers


def _of_logger(logger: logging.Logger) -> tuple[int, list[logging.Handler], bool, bool]:
    return logger.level, list(logger.handlers), logger.propagate, logger.disabled


def _is_of_a_library(name: str) -> bool:
    module = sys.modules.get(name.partition(".")[0])
    file = getattr(module, "__file__", None)
    return module is not None and file is not None and not in_user_code(file)


def unfreeze(frozen: int) -> bool:
    """Let garbage be collected that a loop has frozen; True if it has frozen any.

    Args:
        frozen: objects that were frozen before.
    """
    if gc.get_freeze_count() <= frozen:
        return False
    gc.unfreeze()
    return True
