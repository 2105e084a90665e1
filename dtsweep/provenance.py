"""What a number was measured with: versions, the workload's source, and the revision of the sweep's own files."""

from __future__ import annotations

import ast
import hashlib
import inspect
import os
import platform
import subprocess
import sys
import sysconfig
import types
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TIMEOUT_S = 5.0
ELSEWHERE = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE")
"""Variables that git sets in its hooks; they would point to another repository than the folder's."""


def versions() -> dict[str, str]:
    """Versions of what measures, by the column that keeps them; a package that has none is left out."""
    found = {"python_version": platform.python_version()}
    for package in ("dtsweep", "torch", "ray"):
        try:
            found[f"{package}_version"] = version(package)
        except PackageNotFoundError:
            # Without Ray, `dtsweep.worker` still measures; an unpacked dtsweep has no metadata.
            continue
    return found


def release(version: str) -> str:
    """A version without the build's label and the patch level: those may differ between a head and its workers.

    >>> release("2.13.0+cu126")
    '2.13'
    """
    return ".".join(version.partition("+")[0].split(".")[:2])


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Versions whose releases differ: name, theirs, ours. What they don't have is no difference.

    >>> ours = {"torch_version": "2.13.0+cpu", "ray_version": "2.60.0"}
    >>> differences({"torch_version": "2.12.1", "ray_version": "2.60.1"}, ours)
    [('torch_version', '2.12.1', '2.13.0+cpu')]
    """
    both = [(name, there[name], ours) for name, ours in here.items() if name in there]
    return [(name, theirs, ours) for name, theirs, ours in both if release(theirs) != release(ours)]


def slow_import() -> str | None:
    """A package of this environment that slows every start of Ray down, and what to do; None without it.

    Ray imports jsonschema in each process; from 4.25 on, that imports rfc3987-syntax where it is installed (JupyterLab
    asks for it), whose grammar takes a second or more to compile.
    """
    if find_spec("rfc3987_syntax") is None:
        return None
    try:
        is_slow = [int(number) for number in release(version("jsonschema")).split(".")] >= [4, 25]
    except PackageNotFoundError:
        return None
    way = "pip install 'jsonschema<4.25', or pip uninstall rfc3987-syntax"
    return f"rfc3987-syntax makes every start of Ray slower by a second or more here: {way}" if is_slow else None


def workload_digest(workload: Any, *, folder: Path | None) -> str:
    """A digest of a workload's source: results of another source are never mixed with these.

    What counts are the files that define the class and its bases, as Python reads them, without comments and without
    `sweep` (another axis is not another workload), and the modules beside the sweep file that are loaded. Of a script
    that calls `dtsweep.run` the class counts, with what it uses, and so on; of a class that was typed into a notebook
    its methods; of dtsweep's own all workloads.

    Args:
        workload: an object of the class.
        folder: where the sweep file lies; None for a sweep made in Python.

    Returns:
        16 hex digits.
    """
    digest = hashlib.sha256()
    for part in (*_classes(type(workload)), *_modules(folder, type(workload).__module__)):
        digest.update(part)
    return digest.hexdigest()[:16]


def _classes(kind: type) -> Iterator[bytes]:
    """The sources of a class and its bases; the standard library is left to the version of Python."""
    for base in kind.__mro__:
        module = sys.modules.get(base.__module__)
        if base is object or _is_standard(module):
            continue
        try:
            source = inspect.getsource(module)  # type: ignore[arg-type]  # None is the TypeError below
        except (OSError, TypeError):
            # A class that was typed into a notebook has no file; its compiled methods stand for it.
            for name, value in sorted(vars(base).items()):
                if isinstance(value, types.FunctionType):
                    constants = [c for c in value.__code__.co_consts if not isinstance(c, types.CodeType)]
                    yield name.encode() + value.__code__.co_code + repr(constants).encode()
            continue
        if base.__module__.startswith("dtsweep."):
            # With what its methods import from beside it.
            yield from (file.read_bytes() for file in sorted(Path(str(module.__file__)).parent.glob("*.py")))  # type: ignore[union-attr]
        else:
            # A class inside a function of a script is not reached by its name: then the whole script counts.
            reached = _reached(source, base.__name__) if base.__module__ == "__main__" else ""
            yield f"{base.__qualname__}\n{reached or _without_sweep(source)}".encode()


def _is_standard(module: types.ModuleType | None) -> bool:
    """Whether a module comes with Python; one of the user's may have the same name."""
    file = Path(getattr(module, "__file__", None) or "/")
    packages = (sysconfig.get_path(name) for name in ("purelib", "platlib"))
    return file.is_relative_to(sysconfig.get_path("stdlib")) and not any(map(file.is_relative_to, packages))


def _without_sweep(source: str) -> str:
    """The source of a module as Python reads it: no comments, and no assignment to `sweep`."""
    tree = ast.parse(source)
    tree.body = [node for node in tree.body if not _is_sweep(node)]
    return ast.unparse(tree)


def _reached(source: str, name: str) -> str:
    """What a script defines as `name`, and what that uses, and so on; what else the script does is no part of it."""
    defining: dict[str, list[ast.stmt]] = {}
    for statement in _statements(ast.parse(source).body):
        for defined in _names_defined(statement):
            defining.setdefault(defined, []).append(statement)
    waiting, reached = [name], []
    while waiting:
        for statement in defining.pop(waiting.pop(), ()):
            reached.append(ast.unparse(statement))
            waiting += [node.id for node in ast.walk(statement) if isinstance(node, ast.Name)]
    return "\n".join(sorted(set(reached)))


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under `if`, `try` and `with` too."""
    for statement in body:
        if isinstance(statement, ast.If | ast.Try | ast.With | ast.ExceptHandler):
            children = ast.iter_child_nodes(statement)
            yield from _statements(node for node in children if isinstance(node, ast.stmt | ast.ExceptHandler))  # type: ignore[misc]  # a handler holds statements
        else:
            yield statement


def _names_defined(statement: ast.stmt) -> set[str]:
    match statement:
        case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
            return {name}
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return {(alias.asname or alias.name).partition(".")[0] for alias in names}
    stored = (node for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store))
    return {node.id for node in stored}


def _is_sweep(node: ast.stmt) -> bool:
    match node:
        case ast.Assign(targets=[ast.Name("sweep")]) | ast.AnnAssign(target=ast.Name("sweep")):
            return True
    return False


def _modules(folder: Path | None, workload_module: str) -> Iterator[bytes]:
    if folder is None:
        return
    root = folder.resolve()
    for name, module in sorted(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or "/")
        # A sweep file counts only where it defines the workload, and then it has been read already.
        other = name in (workload_module, "__main__", "dtsweep") or name.startswith(("dtsweep.", "dtsweep_file_"))
        # A project's folder often holds its environment too.
        if not other and file.suffix == ".py" and file.is_relative_to(root) and not file.is_relative_to(sys.prefix):
            yield file.read_bytes()


def git_commit(folder: Path | None) -> str | None:
    """The commit of a folder.

    Args:
        folder: of the sweep file; None if it has none.

    Returns:
        12 digits, then `+changes` where a file below the folder differs from the commit or a Python file is not in
        it (other new files are most often results); None outside a repository, and where git is missing or slow.
    """
    if folder is None:
        return None
    commit = _git(folder, "rev-parse", "--short=12", "HEAD")
    status = _git(folder, "status", "--porcelain", "-z", "--untracked-files=all", "--", ".")
    if commit is None or status is None:
        return None
    entries = [entry for entry in status.split("\0") if entry]
    changed = any(not entry.startswith("??") or entry.endswith(".py") for entry in entries)
    return commit.strip() + ("+changes" if changed else "")


def _git(folder: Path, *arguments: str) -> str | None:
    # Without optional locks: a lock would make a commit fail that someone makes at the same moment.
    command = ["git", "--no-optional-locks", "-C", str(folder), *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in ELSEWHERE}
    try:
        done = subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return os.fsdecode(done.stdout) if done.returncode == 0 else None
