"""The reading order in the package's docstring is the order of imports, and heavy libraries have owners."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import dtsweep

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "dtsweep"
ORDER = re.findall(r"^    ([a-z_][\w.]*)  +\S", dtsweep.__doc__ or "", re.MULTILINE)

OWNERS = {
    "ray": "cluster doctor drive launch nodes ranks runner scheduler session sync.parameter_server",
    "torch": "aftermath control doctor loop measure.clock measure.exchange measure.flops measure.machine measure.memory"
    " measure.peaks measure.profile measure.telemetry ranks sync.ddp sync.local_sgd"
    " sync.parameter_server sync.passes timing worker"
    " workloads.cifar10 workloads.gpt workloads.samples workloads.transformers",
    "pyarrow": "folder parts schema store",
    "pandas": "analysis.difference analysis.scaling caveats cells report store",
    "scipy": "analysis.spread measure.statistics",
    "psutil": "measure.host measure.telemetry",
    "pynvml": "measure.machine measure.nvml measure.telemetry",
    "rich": "caveats cli progress terminal",
    "click": "cli",
    "transformers": "workloads.transformers",
}
"""Who may import what, anywhere in the module."""

ONLY_IN_FUNCTIONS = {
    "pandas": OWNERS["pandas"],
    "scipy": OWNERS["scipy"],
    "transformers": OWNERS["transformers"],
    "torch": "doctor ranks workloads.cifar10 workloads.gpt workloads.samples workloads.transformers",
    "ray": "runner",
}
"""Who may import what only where it is needed, so that the module itself is light."""


HEAVY = {"ray", "torch", "numpy", "pandas", "psutil", "pynvml", "scipy", "transformers"}
"""What neither a plan nor an error in a sweep file should wait for."""


class Import(NamedTuple):
    """A name that a module imports."""

    line: int
    name: str
    in_function: bool


def names_of_modules() -> dict[str, Path]:
    """The package's modules by the names that the docstring uses; the package itself, which imports its face, not."""
    files = {file.relative_to(PACKAGE): file for file in PACKAGE.rglob("*.py")}
    named = {".".join(part.with_suffix("").parts).removesuffix(".__init__"): file for part, file in files.items()}
    return {name: file for name, file in named.items() if name not in ("__init__", "__main__")}


def imports_of(node: ast.AST, *, in_function: bool = False) -> Iterator[Import]:
    """Yield what code imports when it runs: not for type checkers, and not what a module runs as a command."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Compare(left=ast.Name(id="__name__"))):
                for other in child.orelse:
                    yield from imports_of(ast.Module([other], []), in_function=in_function)
            case ast.Import(names=names):
                yield from (Import(child.lineno, name.name, in_function) for name in names)
            case ast.ImportFrom(module=str(module), names=names):
                assert child.level == 0, f"line {child.lineno}: imports give the whole name"
                yield from (Import(child.lineno, f"{module}.{name.name}", in_function) for name in names)
            case _:
                inside = in_function or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
                yield from imports_of(child, in_function=inside)


MODULES = names_of_modules()
IMPORTS = {name: list(imports_of(ast.parse(file.read_text("utf-8")))) for name, file in MODULES.items()}


def test_every_module_stands_once_in_the_reading_order() -> None:
    assert sorted(ORDER) == sorted(MODULES)


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_only_what_stands_above_it(module: str) -> None:
    above = ORDER[: ORDER.index(module)]
    for line, name, _ in IMPORTS[module]:
        if name.partition(".")[0] == "dtsweep":
            inner = name.removeprefix("dtsweep.")
            source = inner if inner in MODULES else inner.rpartition(".")[0]
            assert source in above, f"{MODULES[module]}:{line} imports {source or 'the package itself'}"


@pytest.mark.parametrize("library", OWNERS)
def test_a_heavy_library_is_imported_by_its_owners_alone(library: str) -> None:
    users = {module for module, found in IMPORTS.items() if library in {i.name.partition(".")[0] for i in found}}
    assert users == set(OWNERS[library].split())


@pytest.mark.parametrize("library", ONLY_IN_FUNCTIONS)
def test_a_library_that_few_calls_need_is_imported_inside_functions(library: str) -> None:
    for module in ONLY_IN_FUNCTIONS[library].split():
        outside = [i.line for i in IMPORTS[module] if i.name.partition(".")[0] == library and not i.in_function]
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


def test_the_check_sees_what_is_loaded() -> None:
    assert heavy_after("import scipy") == {"numpy", "scipy"}


def test_importing_dtsweep_loads_no_heavy_library() -> None:
    assert heavy_after("import dtsweep") == set()


def test_help_loads_no_heavy_library() -> None:
    assert heavy_after(command("--help")) == set()


def test_a_plan_loads_no_heavy_library(tmp_path: Path) -> None:
    # Arrow brings NumPy along.
    assert heavy_after(command("plan", "sweeps/batchsize.py", "--results", str(tmp_path))) <= {"numpy"}


def test_a_broken_sweep_file_is_refused_before_a_heavy_library_is_loaded(tmp_path: Path) -> None:
    file = tmp_path / "study.py"
    file.write_text(
        "from dtsweep import Sweep, workloads\nsweep = Sweep(workload=workloads.Gpt(), axes={'worker': []})"
    )
    assert heavy_after(command("run", str(file), "--address", "local"), exit_code=2) == set()


def test_the_driver_never_needs_torch() -> None:
    loaded = heavy_after("import dtsweep.drive, dtsweep.keeper, dtsweep.runner, dtsweep.scheduler")
    assert "ray" in loaded
    assert "torch" not in loaded
