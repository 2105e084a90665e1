"""Ship code to the nodes: the workload by value, modules of the user or of a Ray job as files."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from pickle import PicklingError
from types import FunctionType

from ray import cloudpickle
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR

from dtsweep import errors
from dtsweep.errors import SweepError
from dtsweep.provenance.sources import sources_of
from dtsweep.session.session_settings import Code
from dtsweep.sweep.file import module_name
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.travel import send_modules_by_name
from dtsweep.workloads.own import Script

_UNSENDABLE = (TypeError, ValueError, AttributeError, PicklingError)
"""Errors by which an object says that it can't be pickled."""

LEFT_OUT = (".env", ".env.*", ".git")
"""Patterns of .gitignore form for files that are not shipped; Ray takes all files of a package."""


def pickled_workload(sweep: Sweep) -> Code:
    """Pickle the workload: classes of the sweep file by value, modules of its folder by name.

    Raises:
        SweepError: it uses something that can't be pickled.
    """
    module = sys.modules[type(sweep.workload).__module__]
    by_value = sweep.file is not None and module.__name__ == module_name(sweep.file)
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    send_modules_by_name()
    try:
        pickled = cloudpickle.dumps(sweep.workload)
    except _UNSENDABLE as error:
        used = _unsendable_global(type(sweep.workload)) or str(error)
        raise SweepError(
            f"workload {type(sweep.workload).__name__} can't be sent to the workers: {used}"
        ) from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    folder = None
    if sweep.file is not None:
        folder = str(sweep.file.resolve().parent)
    packages = frozenset(sources_of(sweep.workload, file=sweep.file).packages)
    return Code(
        pickled=pickled,
        folder=folder,
        start_folder=str(Path.cwd()),
        packages=packages,
    )


def _unsendable_global(kind: type) -> str | None:
    """Name the first global that a method uses and that can't be pickled, with the way out."""
    for method, function in vars(kind).items():
        if not isinstance(function, FunctionType):
            continue
        for name in sorted(function.__globals__.keys() & {*function.__code__.co_names}):
            try:
                cloudpickle.dumps(function.__globals__[name])
            except _UNSENDABLE as error:
                return f"{method}() uses {name} ({error}); make it in a method"
    return None


def own_modules(sweep: Sweep) -> list[Path]:
    """List the user's own modules and packages that the workload imports, and its script.

    Ray refuses a compiled module that is not in a package.
    """
    modules = sources_of(sweep.workload, file=sweep.file).modules
    if isinstance(sweep.workload, Script):
        modules = [Path(sweep.workload.path), *modules]
    return [path for path in modules if path.is_dir() or path.suffix == ".py"]


def shipped_modules(folder: Path | None, modules: Sequence[Path] = ()) -> list[str]:
    """List what is sent to the nodes: this dtsweep, and modules next to the sweep file."""
    neighbours = []
    if folder is not None:
        neighbours = sorted(folder.resolve().iterdir())
    # The first of a name is imported.
    paths = [Path(errors.__file__).parent]
    # A symbolic link keeps its own name, by which it is imported.
    paths += [path.parent.resolve() / path.name for path in modules]
    paths += [
        path for path in neighbours if path.suffix == ".py" or (path / "__init__.py").is_file()
    ]
    return [str(path) for path in dict.fromkeys(paths)]


def modules_of_job(environment: Mapping[str, str]) -> list[str]:
    """List the modules of a Ray job, if this process is its entrypoint.

    Otherwise Ray would drop them in favour of ours.

    >>> modules_of_job({"RAY_JOB_CONFIG_JSON_ENV_VAR": '{"runtime_env": {"py_modules": ["gcs://_ray_pkg_1.zip"]}}'})
    ['gcs://_ray_pkg_1.zip']
    """
    job = json.loads(environment.get(RAY_JOB_CONFIG_JSON_ENV_VAR, "{}"))
    return list((job.get("runtime_env") or {}).get("py_modules") or [])
