"""What a workload's numbers depend on beside its fields, and what has changed of it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, is_dataclass
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import pytest

from dtsweep import workloads
from dtsweep.provenance.sources import Sources, sources_of
from dtsweep.sweep.file import module_name, read_sweep
from dtsweep.sweep.values import stored_fields
from tests.pages import ROOT


def counted(workload: Any, file: Path | None = None) -> dict[str, str]:
    """What counts of a workload."""
    fields = asdict(workload) if is_dataclass(workload) else {}
    return sources_of(workload, file=file).with_data(fields)


OWN = '''
"""?"""
from dataclasses import dataclass
from torch import nn
from dtsweep import Sweep, workloads

WIDTH = 3

def net():
    return nn.Linear(WIDTH, 1)

@dataclass(frozen=True)
class Own:
    def build(self):
        return net()
    def batch(self, samples, device): ...
    def loss(self, model, batch): ...

@dataclass(frozen=True)
class Other:
    build, batch, loss = Own.build, Own.batch, Own.loss

sweep = Sweep(workload=Own(), axes={"workers": [1]})
'''


def of_file(path: Path, text: str) -> dict[str, str]:
    """What counts of the workload of a sweep file with this text."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    before = set(sys.modules)
    sweep, _ = read_sweep(path)
    found = counted(sweep.workload, path)
    sys.path.remove(str(path.parent))
    for name in {module_name(path), *(set(sys.modules) - before)}:
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if file.startswith(str(path.parent)):
            del sys.modules[name]
    return found


@pytest.mark.parametrize(
    ("old", "new", "is_another"),
    [
        ("WIDTH = 3", "WIDTH = 4", True),
        ("nn.Linear(WIDTH, 1)", "nn.Linear(WIDTH, 2)", True),
        ("workload=Own()", "workload=Other()", True),
        ("[1]", "[1, 2]", False),
        ("WIDTH = 3", "WIDTH  =  3  # inputs", False),
    ],
)
def test_the_digest_follows_the_sweep_file_but_not_its_sweep(
    tmp_path: Path, old: str, new: str, is_another: bool
) -> None:
    one = of_file(tmp_path / "a" / "own.py", OWN)
    other = of_file(tmp_path / "b" / "own.py", OWN.replace(old, new))
    assert (one != other) == is_another


def test_of_a_sweep_of_dtsweeps_workload_the_file_does_not_count(tmp_path: Path) -> None:
    text = OWN.replace("workload=Own()", "workload=workloads.Gpt()")
    assert of_file(tmp_path / "own.py", text) == counted(workloads.Gpt())


SCRIPT = """
from dataclasses import dataclass
from math import pi as factor
from dtsweep import Resources, Sweep
from dtsweep.provenance.sources import sources_of
BASE = 2
WIDTH = BASE * 3
def net(): return WIDTH * factor
@dataclass(frozen=True)
class Own:
    wanted: Resources
    def build(self): return net() + 1
    def batch(self, samples, device): ...
    def loss(self, model, batch): ...
def main():
    sweep = Sweep(workload=Own(1), axes={"workers": [1]})
    return sources_of(sweep.workload, file=None)
if __name__ == "__main__":
    axes = dict(workers=range(5))
    print(main().columns({}))
"""


def python(*arguments: object, folder: Path, seed: str = "1") -> str:
    """What a Python prints that runs in a folder."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed}
    command = [sys.executable, *map(str, arguments)]
    return subprocess.check_output(command, cwd=folder, env=environment, text=True, timeout=60)


def output_of(folder: Path, script: str) -> str:
    """What a script prints, run by itself."""
    (folder / "study.py").write_text(script)
    return python(folder / "study.py", folder=folder)


@pytest.mark.parametrize(
    ("old", "new", "is_another"),
    [
        ("range(5)", "range(6)", False),
        ("+ 1", "+ 2", True),
        ("BASE = 2", "BASE = 3", True),
        ("import pi", "import tau", True),
    ],
    ids=["under main", "class", "constant", "import"],
)
def test_a_script_that_runs_its_own_sweep_counts_but_for_its_question(
    tmp_path: Path, old: str, new: str, is_another: bool
) -> None:
    digests = [output_of(tmp_path, text) for text in (SCRIPT, SCRIPT.replace(old, new))]
    assert "workload_digest" in digests[0]
    assert (digests[0] != digests[1]) == is_another


# What a class imports


PROJECT = {
    "own.py": """
from dataclasses import dataclass
from typing import TYPE_CHECKING
import layers
from dtsweep import Sweep
if TYPE_CHECKING:
    import unused

@dataclass(frozen=True)
class Own:
    def build(self):
        from nets import make
        def inner():
            import importlib
            return importlib.import_module("tabnanny")
        return make(layers.SIZE)
    def batch(self, samples, device): ...
    def loss(self, model, batch): ...

sweep = Sweep(workload=Own(), axes={"workers": [1]})
""",
    "layers.py": "from sizes import SIZE\n",
    "sizes.py": "SIZE = 3\n",
    # Python has one of this name.
    "tabnanny.py": "A = 1\n",
    "nets/__init__.py": (
        "from .block import Block\ndef make(size):\n    from . import extra\n    return Block\n"
    ),
    "nets/block.py": "from nets.inner.deep import A\nclass Block: ...\n",
    "nets/extra.py": "B = 1\n",
    "nets/inner/deep.py": "from ..sibling import C as A\n",
    "nets/sibling.py": "C = 1\n",
    "unused.py": "D = 1\n",
    "nets/unused.py": "E = 1\n",
}


def written(folder: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def changed(then: dict[str, str], now: dict[str, str]) -> set[str]:
    return {name for name in {*then, *now} if then.get(name) != now.get(name)}


def of_project(folder: Path, files: Mapping[str, str]) -> dict[str, str]:
    return of_file(written(folder, files) / "own.py", files["own.py"])


def test_all_modules_that_a_class_imports_count_wherever_it_does_so(tmp_path: Path) -> None:
    found = of_project(tmp_path / "a", PROJECT)
    used = {name for name in PROJECT if "unused" not in name and name != "own.py"}
    assert set(found) == {"class Own", *used}
    # The same project in another place is the same.
    assert of_project(tmp_path / "b", PROJECT) == found


@pytest.mark.parametrize("file", PROJECT)
def test_an_edit_changes_the_file_that_is_edited_and_nothing_else(
    tmp_path: Path, file: str
) -> None:
    before, text = of_project(tmp_path, PROJECT), PROJECT[file]
    counts = {"class Own"} if file == "own.py" else {file} - {"unused.py", "nets/unused.py"}
    edited = text.replace("layers.SIZE", "2") if file == "own.py" else f"{text}NEW = 1\n"
    assert changed(before, of_project(tmp_path, PROJECT | {file: edited})) == counts
    assert of_project(tmp_path, PROJECT | {file: f"# a comment\n\n{text}"}) == before


def test_what_is_compiled_or_no_python_counts_by_its_bytes(tmp_path: Path) -> None:
    files = PROJECT | {
        f"sibling{EXTENSION_SUFFIXES[0]}": "one",
        # Nothing of the user's is imported.
        "nets/__init__.py": "raise RuntimeError('imported')\n" + PROJECT["nets/__init__.py"],
        "nets/extra.py": "import sibling\nnot Python",
        "nets/sibling.py": "import sibling\nC = 1\n",
    }
    before = of_project(tmp_path, files)
    assert {"sibling.so", "nets/extra.py"} <= set(before)
    files |= {f"sibling{EXTENSION_SUFFIXES[0]}": "two", "nets/extra.py": "not  Python"}
    assert changed(before, of_project(tmp_path, files)) == {"sibling.so", "nets/extra.py"}


def test_a_project_that_is_installed_in_place_counts_and_an_installed_package_by_its_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project, packages = tmp_path / "checkout" / "src", tmp_path / "lib" / "site-packages"

    def installed(version: int) -> None:
        metadata = f"Metadata-Version: 2.1\nName: many-models\nVersion: {version}\n"
        files = {
            "__init__.py": f"A = {version}\n",
            "../many_models-1.0.dist-info/METADATA": metadata,
        }
        (packages / "many_models").mkdir(parents=True, exist_ok=True)
        written(packages / "many_models", files)

    def of_class() -> dict[str, str]:
        build = "    def build(self):"
        text = OWN.replace(build, f"{build}\n        from my_nets import wide")
        return of_file(tmp_path / "study" / "own.py", text)

    written(project, {"my_nets/__init__.py": "", "my_nets/wide.py": "import many_models\nA = 1\n"})
    installed(1)
    monkeypatch.syspath_prepend(project)
    monkeypatch.syspath_prepend(packages)
    found = of_class()
    files = {"my_nets/__init__.py", "my_nets/wide.py"}
    assert set(found) == {"class Own", *files, "package many_models"}
    written(project, {"my_nets/wide.py": "import many_models\nA = 2\n"})
    assert changed(found, of_class()) == {"my_nets/wide.py"}
    installed(2)
    assert (found["package many_models"], of_class()["package many_models"]) == ("1", "2")


@pytest.mark.parametrize(
    ("workload", "files", "packages"),
    [
        (workloads.Gpt(), {"gpt", "decoder", "fields", "samples"}, set()),
        (workloads.Cifar10Cnn(), {"cifar10", "fields", "samples"}, set()),
        (workloads.Transformers("gpt2"), {"transformers", "fields", "samples"}, {"transformers"}),
    ],
    ids=lambda value: type(value).__name__,
)
def test_our_own_workloads_count_with_their_helpers_and_without_the_others(
    workload: Any, files: set[str], packages: set[str]
) -> None:
    found = sources_of(workload, file=None)
    modules = {name for name in found.digests if name.endswith(".py")}
    assert modules == {f"dtsweep/workloads/{file}.py" for file in files}
    assert found.packages == packages


OF_PROJECT = """
import sys
from pathlib import Path
from dtsweep.provenance.sources import sources_of
from dtsweep.sweep.file import read_sweep
sweep, _ = read_sweep(Path(sys.argv[1]))
columns = sources_of(sweep.workload, file=Path(sys.argv[1])).columns({})
print(columns, {"torch", "numpy", "nets"} & set(sys.modules))
"""


def test_sources_are_the_same_in_every_process_and_folder_and_load_nothing_heavy(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, PROJECT) / "own.py"
    places = (("1", tmp_path), ("2", ROOT), ("3", Path("/")))
    said = {python("-c", OF_PROJECT, file, folder=place, seed=seed) for seed, place in places}
    assert len(said) == 1
    assert "set()" in said.pop()


@pytest.mark.parametrize(
    "line",
    ["from my_layers import Layer", "import importlib; importlib.import_module('my_layers')"],
)
def test_of_a_script_what_its_class_imports_counts(tmp_path: Path, line: str) -> None:
    text = SCRIPT.replace("return net() + 1", f"{line}; from ... import outside; return net()")
    said = []
    for size in (1, 2):
        written(tmp_path, {"my_layers.py": f"import math\nSIZE = {size}\n", "unused.py": ""})
        said.append(json.loads(ast.literal_eval(output_of(tmp_path, text))["sources"]))
    assert set(said[0]) == {"class Own", "my_layers.py"}
    assert changed(*said) == {"my_layers.py"}


# Data


def test_the_contents_of_a_file_or_folder_that_a_field_names_count(tmp_path: Path) -> None:
    file, folder = tmp_path / "text.txt", tmp_path / "texts"

    def digest() -> tuple[str | None, ...]:
        fields = {"text": str(file), "data": str(folder), "cache": str(folder)}
        others = {"size": 3, "name": "", "more": ["/tmp"]}
        seen = Sources({"class Own": "1"}).with_data({**fields, **others})
        assert set(seen) <= {"class Own", "field text", "field data"}
        return tuple(seen.get(f"field {name}") for name in ("text", "data"))

    assert digest() == (None, None)
    file.write_bytes(bytes(3 * 2**20))
    written(folder, {"a.txt": "one", "deep/b.txt": "two", ".cache/c.txt": "three"})
    first, found = digest(), Sources({"class Own": "1"})
    assert None not in first
    row = {"workload_data": str(file)}
    assert found.columns(row | {"data": "x"}) == found.columns(row)
    # The same contents elsewhere are the same.
    file.rename(tmp_path / "elsewhere")
    assert found.with_data({"data": str(tmp_path / "elsewhere")})["field data"] == first[0]
    (tmp_path / "elsewhere").rename(file)
    for place in (0, 2**19, 3 * 2**20 - 1):
        before = digest()
        with file.open("r+b") as stream:
            stream.seek(place)
            stream.write(b"x")
        os.utime(file, ns=(place, place))
        assert digest()[0] != before[0]
    written(folder, {"deep/b.txt": "TWO"})
    os.utime(folder / "deep" / "b.txt", ns=(1, 1))
    assert digest()[1] != first[1]


@dataclass(frozen=True)
class Several:
    data: str | list[str]
    files: dict[str, str] = field(default_factory=dict)
    text: str | int = 0


def test_paths_in_fields_that_are_stored_as_json_count_each_by_itself(tmp_path: Path) -> None:
    folder, other, file = tmp_path / "d1", tmp_path / "d2", tmp_path / "d1" / "a.txt"
    written(tmp_path, {"d1/a.txt": "one", "d2/b.txt": "two"})

    def seen(workload: Several) -> dict[str, str]:
        row = stored_fields(workload)
        found = Sources().columns(row)["sources"]
        assert Sources().with_data(asdict(workload)) == json.loads(found)
        return dict(json.loads(found))

    one, listed = Several(data=str(folder)), [str(folder), "synthetic", str(other)]
    both = Several(data=listed, files={"train": str(file)}, text=str(file))
    assert stored_fields(one)["workload_data"] == f'"{folder}"'
    of_one, of_both = seen(one), seen(both)
    of_file = {"field data[0]", "field files[train]", "field text"}
    assert (set(of_one), set(of_both)) == ({"field data"}, {*of_file, "field data[2]"})
    assert of_one["field data"] == of_both["field data[0]"]
    written(tmp_path, {"d1/a.txt": "other"})
    assert changed(of_one, seen(one)) == {"field data"}
    assert changed(of_both, seen(both)) == of_file


@pytest.mark.parametrize(
    "value",
    [
        *("synthetic", "/no/such/file", "/a\0b", "/dev/null", "", '"/dev/null', "[1, null]"),
        "/" + "a" * 5000,
    ],
)
def test_a_relative_path_and_what_is_no_path_are_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.chdir(written(tmp_path, {"synthetic": "a file of this name"}))
    assert Sources().with_data({"data": value}) == {}


# What has changed


def stored(sources: Sources, **row: Any) -> dict[str, Any]:
    return {"workload_data": None, **row, **sources.columns(row)}


def test_what_has_changed_is_named_in_a_line() -> None:
    common = {"class Net": "1", "layers.py": "1", "package timm": "1.0.9"}
    then = Sources({**common, "old.py": "1"}, place="net.py")
    new = {"class Net": "1", "layers.py": "2", "new.py": "1", "package timm": "1.0.11"}
    other = {**then.digests, "class Net": "2", "package timm": "1.0.11"}
    assert then.differ_from(stored(then)) is None
    for digests, line in (
        (new, "layers.py changed, new.py was added, old.py was removed and 1 more"),
        (other, "the class Net changed (net.py), timm 1.0.9 became 1.0.11"),
    ):
        assert Sources(digests, place="net.py").differ_from(stored(then)) == line


def test_data_and_packages_that_only_one_machine_can_see_are_no_change(tmp_path: Path) -> None:
    def sources() -> Sources:
        return Sources({"class Net": "1"})

    data, run = str(written(tmp_path, {"a": "1"}) / "a"), sources()
    row = stored(run, workload_data=data)
    written(tmp_path, {"a": "22"})
    # Within a run all rows are of what it began with.
    assert stored(run, workload_data=data) == row
    assert sources().differ_from(row) == "the contents of the field data changed"
    Path(data).unlink()
    assert sources().differ_from(row) is None
    assert Sources({"class Net": "1", "package timm": "1"}).differ_from(stored(sources())) is None
