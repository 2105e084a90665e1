"""Rooms and files stand in the order of their docstrings, and heavy libraries have owners."""

from __future__ import annotations

import ast
import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import dtsweep
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.modes import CLOSED_LOOP, MODES, OWN, mode_of
from tests.pages import ROOT

PACKAGE = ROOT / "dtsweep"

OWNERS = {
    "ray": "session serving cluster driver doctor servers.parameter_server",
    "torch": "worker loops measure hardware compression sync servers serving session doctor "
    "workloads",
    "pyarrow": "results",
    "pandas": "results inference analysis predict report show compare foreign_tables",
    "scipy": "measure inference predict analysis compare",
    "psutil": "hardware",
    "moocore": "inference",
    "lark": "analysis.where",
    "pynvml": "hardware",
    "rich": "text driver report show cli",
    "plotly": "show",
    "IPython": "show.notebook",
    "click": "cli",
    "transformers": "workloads",
}
"""Who may import what, anywhere in a module: rooms, or single files."""

LATE = "plotly IPython pandas scipy moocore lark transformers"
ONLY_IN_FUNCTIONS = {name: OWNERS[name] for name in LATE.split()} | {
    "torch": "session doctor workloads.samples workloads.cifar10 workloads.gpt "
    "workloads.transformers",
}
"""Who may import what only where it is needed, so that the module itself is light."""

IN_RANKS = {f"session.{name}" for name in ("attempt", "in_process", "loop_process", "loop_server")}
"""Modules of `session` that only ranks import, and torch with them."""

MEASURING = (
    "hardware measure results workloads compression sync servers metrics worker loops serving "
    "session"
)
READING = "inference analysis predict plan cluster driver report show compare foreign_tables"
"""The two wings. The first, which runs in ranks and slots, imports nothing of the second."""

HEAVY = {"ray", "torch", "numpy", "pandas", "psutil", "pynvml", "scipy", "transformers"}
"""What neither a plan nor an error in a sweep file should wait for."""


class Import(NamedTuple):
    """A name that a module imports."""

    line: int
    name: str
    in_function: bool


def listed(docstring: str | None) -> list[str]:
    """The names that a docstring lists in reading order, indented by four."""
    return re.findall(r"^    ([a-z_]\w*)  +\S", docstring or "", re.MULTILINE)


ROOMS = listed(dtsweep.__doc__)
FILES = {
    room: listed(importlib.import_module(f"dtsweep.{room}").__doc__)
    for room in ROOMS
    if (PACKAGE / room).is_dir()
}
# A mode is listed once, in MODES, as a compression is in COMPRESSIONS; one file may have several.
FILES["sync"] += dict.fromkeys(
    mode.implementation.partition(":")[0].rpartition(".")[2]
    for mode in (*MODES.values(), mode_of(OWN), mode_of(CLOSED_LOOP))
    if ".sync." in mode.implementation
)
FILES["compression"] += dict.fromkeys(
    info.implementation.partition(":")[0].rpartition(".")[2] for info in COMPRESSIONS.values()
)
# A room's __init__ is its face: it may import all of its files, and comes after them.
ORDER = [
    module
    for room in ROOMS
    for module in (*(f"{room}.{name}" for name in FILES.get(room, ())), room)
]


def names_of_modules() -> dict[str, Path]:
    """The package's modules by their names in docstrings, without `__init__` and `__main__`."""
    named = {}
    for file in PACKAGE.rglob("*.py"):
        name = ".".join(file.relative_to(PACKAGE).with_suffix("").parts)
        named[name.removesuffix(".__init__")] = file
    return {name: file for name, file in named.items() if name not in ("__init__", "__main__")}


def imports_of(node: ast.AST, *, in_function: bool = False) -> Iterator[Import]:
    """Yield what code imports when it runs: not for type checkers, and not as a command."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(
                test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))
            ):
                for other in child.orelse:
                    yield from imports_of(ast.Module([other], []), in_function=in_function)
            case ast.Import(names=names):
                yield from (Import(child.lineno, name.name, in_function) for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                assert child.level == 0, f"line {child.lineno}: imports give the whole name"
                yield from (
                    Import(child.lineno, f"{module}.{name.name}", in_function) for name in names
                )
            case _:
                inside = in_function or isinstance(
                    child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
                )
                yield from imports_of(child, in_function=inside)


MODULES = names_of_modules()
IMPORTS = {
    name: list(imports_of(ast.parse(file.read_text("utf-8")))) for name, file in MODULES.items()
}


def is_in(module: str, owners: str) -> bool:
    """True if a module is one of these, or lies in one of these rooms."""
    return not {module, module.partition(".")[0]}.isdisjoint(owners.split())


def is_of(library: str, imported: Import) -> bool:
    return imported.name.partition(".")[0] == library


def test_what_measures_imports_nothing_of_what_reads() -> None:
    found = [
        (name, imported.name)
        for name, imports in IMPORTS.items()
        if is_in(name, MEASURING)
        for imported in imports
        if is_in(imported.name.removeprefix("dtsweep."), READING)
    ]
    assert not found


def test_every_module_is_listed_once() -> None:
    assert sorted(ORDER) == sorted(MODULES)


@pytest.mark.parametrize("room", FILES)
def test_a_room_says_in_which_process_it_runs(room: str) -> None:
    where = (importlib.import_module(f"dtsweep.{room}").__doc__ or "").splitlines()[2]
    assert re.match(r"(Any process|Each worker process|Ranks|Readers|The driver|An actor)", where)


def source_of(name: str) -> str:
    """The module of the package that a name is imported from."""
    inner = name.removeprefix("dtsweep.")
    if inner in MODULES:
        return inner
    return inner.rpartition(".")[0]


def test_a_module_imports_only_what_stands_above_it() -> None:
    above: set[str] = set()
    upwards = []
    for module in ORDER:
        upwards += [
            f"{MODULES[module]}:{line} imports {source_of(name) or 'the package itself'}"
            for line, name, _ in IMPORTS[module]
            if name.partition(".")[0] == "dtsweep" and source_of(name) not in above
        ]
        above.add(module)
    assert upwards == []


def names_taken_from(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Modules of the package, each with a name that code takes from it."""
    modules = {}
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or not (node.module or "").startswith("dtsweep"):
            continue
        room = str(node.module).removeprefix("dtsweep").removeprefix(".")
        for name in node.names:
            inner = f"{room}.{name.name}".removeprefix(".")
            if inner in MODULES:
                modules[name.asname or name.name] = inner
            yield room, name.name
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in modules:
                yield modules[name], attribute
            case ast.Constant(value=str(text)):
                # Such as the implementation of a mode, "dtsweep.sync.ring:Ring".
                for module, name in re.findall(r"dtsweep\.([\w.]+)[:.](\w+)", text):
                    yield module, name


def test_a_name_that_one_file_uses_begins_with_an_underscore() -> None:
    folders = ("dtsweep", "tests", "benchmarks", "docs", "sweeps", "notebooks")
    files = [file for folder in folders for file in (ROOT / folder).rglob("*.py")]
    taken = {
        (module, name, file)
        for file in files
        for module, name in names_taken_from(ast.parse(file.read_text("utf-8")))
    }
    elsewhere = {(module, name) for module, name, file in taken if MODULES.get(module) != file}
    alone = []
    for module, file in MODULES.items():
        public = getattr(importlib.import_module(f"dtsweep.{module}"), "__all__", ())
        for node in ast.parse(file.read_text("utf-8")).body:
            names = [
                getattr(node, "name", ""),
                *(target.id for target in getattr(node, "targets", []) if is_name(target)),
                getattr(getattr(node, "target", None), "id", ""),
            ]
            alone += [
                f"{file.relative_to(ROOT)}:{node.lineno} {name}"
                for name in names
                if name
                # A user reads the name of an error.
                and not name.startswith("_")
                and not name.endswith("Error")
                and name not in public
                and (module, name) not in elsewhere
            ]
    assert alone == []


def is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


@pytest.mark.parametrize("library", OWNERS)
def test_a_heavy_library_is_imported_by_its_owners_alone(library: str) -> None:
    users = {module for module, found in IMPORTS.items() if any(is_of(library, i) for i in found)}
    assert not [module for module in users if not is_in(module, OWNERS[library])]
    for owner in OWNERS[library].split():
        assert any(is_in(module, owner) for module in users), owner


@pytest.mark.parametrize("library", ONLY_IN_FUNCTIONS)
def test_a_library_that_few_calls_need_is_imported_inside_functions(library: str) -> None:
    for module, found in IMPORTS.items():
        if is_in(module, ONLY_IN_FUNCTIONS[library]) and module not in IN_RANKS:
            outside = [i.line for i in found if is_of(library, i) and not i.in_function]
            assert not outside, f"{MODULES[module]}:{outside} imports {library} with the module"


def heavy_after(code: str, *, exit_code: int = 0) -> set[str]:
    """Run code in a Python of its own; the heavy libraries that it loaded."""
    report = f"print('loaded', *({HEAVY} & set(sys.modules)))"
    script = f"import atexit, sys\natexit.register(lambda: {report})\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == exit_code, done.stderr
    (loaded,) = [line for line in done.stdout.splitlines() if line.startswith("loaded")]
    return set(loaded.split()[1:])


def command(*arguments: str) -> str:
    return f"sys.argv[1:] = {list(arguments)!r}\nfrom dtsweep.cli import main\nmain()"


@pytest.mark.parametrize(
    ("code", "loaded"),
    [("import scipy", "numpy scipy"), ("import dtsweep", ""), (command("--help"), "")],
)
def test_neither_dtsweep_nor_its_help_loads_a_heavy_library(code: str, loaded: str) -> None:
    # The first one shows that the check sees what is loaded.
    assert heavy_after(code) == set(loaded.split())


def test_a_plan_loads_no_heavy_library(tmp_path: Path) -> None:
    # Arrow brings NumPy along; psutil says how busy the machine is.
    plan = command("plan", "sweeps/batchsize.py", "--results", str(tmp_path))
    assert heavy_after(plan) <= {"numpy", "psutil"}


def test_a_status_loads_neither_ray_nor_torch(tmp_path: Path) -> None:
    # Arrow brings NumPy and pandas along.
    status = command("status", str(tmp_path))
    assert heavy_after(status, exit_code=2) <= {"numpy", "pandas"}


def test_a_broken_sweep_file_is_refused_before_a_heavy_library_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(
        "from dtsweep import Sweep, workloads\n"
        "sweep = Sweep(workload=workloads.Gpt(), axes={'worker': []})"
    )
    assert heavy_after(command("run", str(file), "--address", "local"), exit_code=2) == set()


def test_the_driver_never_needs_torch() -> None:
    modules = ", ".join(
        f"dtsweep.{room}.{name}" for room in ("cluster", "driver") for name in FILES[room]
    )
    loaded = heavy_after(f"import {modules}")
    assert "ray" in loaded
    assert "torch" not in loaded
