"""What travels to the nodes: the workload by value, and the modules beside the sweep file."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from ray import cloudpickle

from dtsweep import errors
from dtsweep.errors import SweepError
from dtsweep.provenance.sources import sources_of
from dtsweep.session.settings import Code
from dtsweep.sweep.file import module_name
from dtsweep.sweep.settings import Sweep

UPLOAD_LIMIT_BYTES = 512 * 2**20
"""What Ray takes as code of a job."""

LEFT_OUT = (".env", ".env.*", ".git")
"""What stays here of a package that travels, in the patterns of .gitignore: Ray takes all files of its folder."""


def pickled_workload(sweep: Sweep, *, is_shipped: bool) -> Code:
    """Pickle the workload: a class of the sweep file by value, what it imports from the folder by name.

    Args:
        sweep: its workload travels.
        is_shipped: whether the folder's modules travel with Ray's job; else they are found where they are.
    """
    module = sys.modules[type(sweep.workload).__module__]
    by_value = sweep.file is not None and module.__name__ == module_name(sweep.file)
    if by_value:
        cloudpickle.register_pickle_by_value(module)
    try:
        pickled = cloudpickle.dumps(sweep.workload)
    except (TypeError, ValueError, AttributeError) as error:
        raise SweepError(f"workload {type(sweep.workload).__name__} can't be sent to the workers: {error}") from error
    finally:
        if by_value:
            cloudpickle.unregister_pickle_by_value(module)
    folder = None if is_shipped or sweep.file is None else str(sweep.file.resolve().parent)
    packages = frozenset(sources_of(sweep.workload, file=sweep.file).packages)
    return Code(pickled=pickled, folder=folder, packages=packages)


def shipped_modules(folder: Path | None) -> list[str]:
    """List what travels to the nodes: dtsweep as it is here, and each module and package beside the sweep file.

    Raises:
        SweepError: it is more than Ray takes.
    """
    modules = [str(Path(errors.__file__).parent)]
    if folder is not None:
        beside = sorted(folder.resolve().iterdir())
        modules += [str(path) for path in beside if path.suffix == ".py" or (path / "__init__.py").is_file()]
    size = sum(path.stat().st_size for module in modules for path in _files(Path(module)))
    if size > UPLOAD_LIMIT_BYTES:
        raise SweepError(f"the code in {folder} has {size / 2**20:.0f} MiB, Ray takes 512; move data elsewhere")
    return modules


def _files(path: Path) -> Iterator[Path]:
    yield from (file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
