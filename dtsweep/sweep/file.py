"""Reading a sweep file: Python that defines `sweep`; what is wrong is said with file and line."""

from __future__ import annotations

import ast
import builtins
import hashlib
import inspect
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, nearest
from dtsweep.sweep.axes import Candidate, candidates, narrow
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.values import Scalar


def read_sweep(
    path: str | Path, settings: dict[str, list[Scalar]] | None = None
) -> tuple[Sweep, list[Candidate]]:
    """Run a sweep file and list its points.

    Args:
        path: the file; its folder is put on `sys.path`, so that it can import what lies next to it.
        settings: axes to narrow or replace.

    Raises:
        SweepError: one line that names the file, the line and the next step.
    """
    path = Path(path)
    source = _source(path)
    if _trains(source):
        # It would begin to train.
        raise SweepError(
            f"{path} is not a sweep file; to measure a training script as it is: "
            f"dtsweep script {path} --axis workers=1,2"
        )
    is_read = False
    try:
        sweep = _sweep_of(_execute(path, source), path)
        is_read = True
        sweep = narrow(sweep, settings or {})
        return sweep, candidates(sweep)
    except SweepError as error:
        # A wrong --set is no mistake of the file: naming a line of it would mislead.
        if is_read and settings is not None and error.word in settings:
            raise SweepError(f"--set: {error}") from error
        line = _line_of(error, str(path.resolve()), source)
        raise SweepError(f"{error} ({path}:{line})" if line else f"{error} ({path})") from error


def _trains(source: bytes) -> bool:
    """True if a file uses a training library and never speaks of a sweep."""
    libraries = rb"^\s*(?:import|from) (?:torch|transformers|lightning|accelerate)\b"
    return b"sweep" not in source.lower() and bool(re.search(libraries, source, re.MULTILINE))


def module_name(path: Path) -> str:
    """A name of its own for each sweep file, so that none hides a module of the same name."""
    stem = re.sub(r"\W", "_", path.stem)
    return f"dtsweep_file_{stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"


def _source(path: Path) -> bytes:
    if path.suffix == ".py" and path.is_file():
        try:
            return path.read_bytes()
        except OSError as error:
            raise SweepError(
                f"{path} can't be read: {error.strerror}; check its permissions"
            ) from error
    if path.is_file():
        raise SweepError(f"{path} is not a Python file; give a sweep file, whose name ends in .py")
    if path.is_dir():
        folder = path
    else:
        folder = path.parent
    paths = {
        file.name: str(file)
        for place in (folder / "sweeps", folder)
        for file in sorted(place.glob("*.py"))
    }
    near = nearest(path.name, paths)
    hint = "give the path of a sweep file, such as sweeps/batchsize.py"
    if near:
        hint = f"did you mean {paths[near]!r}?"
    raise SweepError(
        f"{path} is a folder; {hint}"
        if path.is_dir()
        else f"there is no file {str(path)!r}; {hint}"
    )


def _execute(path: Path, source: bytes) -> ModuleType:
    file = str(path.resolve())
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    name = module_name(path)
    module = ModuleType(name)
    module.__file__ = file
    sys.modules[name] = module
    try:
        # The file's own __future__ imports count, not this module's.
        exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)  # noqa: S102  # a sweep file is code
    except SyntaxError as error:
        where = ""
        if error.filename not in (file, None):
            where = f" in {error.filename}:{error.lineno}"
        raise SweepError(
            f"syntax error{where}: {error.msg}: {(error.text or '').strip()[:80]}"
        ) from error
    except SweepError:
        raise
    except (Exception, SystemExit) as error:  # the user's own code may raise anything
        raise SweepError(_what_failed(error, module)) from error
    return module


def _what_failed(error: BaseException, module: ModuleType) -> str:
    unexpected = re.match(
        r"(?:.*\.)?(\w+)\.__init__\(\) got an unexpected keyword argument '(\w+)'", str(error)
    )
    if unexpected and (kind := _class_named(unexpected[1], module)):
        settings = [
            name for name in inspect.signature(kind).parameters if (kind, name) != (Sweep, "file")
        ]
        return (
            f"{kind.__name__} has no setting {unexpected[2]!r}; "
            f"{did_you_mean(unexpected[2], settings)}"
        )
    frame = traceback.extract_tb(error.__traceback__)[-1]
    is_neighbour = (
        Path(frame.filename).parent == Path(str(module.__file__)).parent
        and frame.filename != module.__file__
    )
    where = ""
    if is_neighbour:
        where = f", raised in {Path(frame.filename).name}:{frame.lineno}"
    near = _near_name(error, module)
    hint = ""
    if near:
        hint = f"; {near}"
    return f"{type(error).__name__}: {str(error).rstrip('.')}{hint}{where}"


def _class_named(name: str, module: ModuleType) -> type | None:
    """Find a class in the sweep file, or in a module that it imports."""
    scopes = [
        vars(module),
        *(vars(value) for value in vars(module).values() if isinstance(value, ModuleType)),
    ]
    return next((kind for scope in scopes if isinstance(kind := scope.get(name), type)), None)


def _near_name(error: BaseException, module: ModuleType) -> str | None:
    wrong_name: Any
    match error:
        case ModuleNotFoundError(name=str(wrong_name)):
            neighbours = Path(str(module.__file__)).parent.iterdir()
            names = [path.stem for path in neighbours if path.suffix == ".py" or path.is_dir()]
            near = nearest(wrong_name, names)
            if not near:
                return "install it, or put it next to the sweep file"
            return f"did you mean {near!r}?"
        case ImportError(name=str(origin)) if origin in sys.modules and "'" in str(error):
            wrong_name = str(error).split("'")[1]
            allowed = dir(sys.modules[origin])
        case AttributeError(name=str(wrong_name), obj=thing):
            allowed = dir(thing)
        case NameError(name=str(wrong_name)):
            allowed = [*vars(module), *dir(builtins)]
        case _:
            return None
    near = nearest(wrong_name, allowed)
    if not near:
        return None
    return f"did you mean {near!r}?"


def _sweep_of(module: ModuleType, path: Path) -> Sweep:
    sweep = getattr(module, "sweep", None)
    if isinstance(sweep, Sweep):
        return replace(sweep, file=path)
    example = "write sweep = Sweep(workload=…, axes=…)"
    if sweep is not None:
        raise SweepError(f"'sweep' is of type {type(sweep).__name__}; {example}", word="sweep")
    sweeps = (name for name, value in vars(module).items() if isinstance(value, Sweep))
    misnamed = next(sweeps, None)
    if misnamed:
        hint = f"rename {misnamed!r} to 'sweep'"
    else:
        hint = example
    raise SweepError(f"the file defines no 'sweep'; {hint}", word=misnamed)


def _line_of(error: SweepError, file: str, source: bytes) -> int | None:
    """Find the line to name: of the user's exception, of the error's word, or of the call."""
    tree = _tree(source)
    calls = _frames(error, file)[-1:] or _sweep_calls(tree)
    lines = (
        _line_that_raised(error.__cause__, file),
        _line_of_word(error.word, tree, calls),
        *(at for at, _ in calls),
    )
    return next((line for line in lines if line is not None), None)


def _tree(source: bytes) -> ast.AST:
    try:
        return ast.parse(source)
    except SyntaxError:
        # That is the error itself: nothing else is to be found.
        return ast.Module([], [])


def _line_that_raised(cause: BaseException | None, file: str) -> int | None:
    """Line of the user's file that raised, or at which Python could not read on."""
    if cause and (frames := _frames(cause, file)):
        return frames[-1][0]
    if not isinstance(cause, SyntaxError):
        return None
    return cause.lineno


def _line_of_word(word: str | None, tree: ast.AST, calls: list[tuple[int, int]]) -> int | None:
    """First line on which a word stands: inside these calls, or else anywhere."""
    lines = []
    if word is not None:
        lines = list(_lines_with(word, tree))
    inside = [line for line in lines if any(first <= line <= last for first, last in calls)]
    return min(inside or lines, default=None)


def _lines_with(word: str, tree: ast.AST) -> Iterator[int]:
    """Yield the lines of a word: as a string, or as the name of an argument or of something."""
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=said) | ast.keyword(arg=said) | ast.Name(id=said) if (
                said == word
            ):
                yield node.lineno
            case ast.Attribute(attr=said) | ast.alias(name=said) if said == word:
                yield node.lineno
            case ast.ClassDef(name=said) | ast.FunctionDef(name=said) if said == word:
                yield node.lineno


def _frames(error: BaseException, file: str) -> list[tuple[int, int]]:
    """First and last line of the calls in this file on an exception's path, outermost first."""
    frames = traceback.extract_tb(error.__traceback__)
    return [
        (frame.lineno or 0, frame.end_lineno or 0) for frame in frames if frame.filename == file
    ]


def _sweep_calls(tree: ast.AST) -> list[tuple[int, int]]:
    """First and last line of each `Sweep(…)`."""
    return [
        (node.lineno, node.end_lineno or 0)
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] == "Sweep"
    ]
