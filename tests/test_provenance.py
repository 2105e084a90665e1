"""Provenance: which source, which revision and which versions a number was measured with."""

from __future__ import annotations

import importlib
import linecache
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dtsweep import workloads
from dtsweep.provenance import git_commit, versions, workload_digest
from dtsweep.sweep.file import module_name, read_sweep
from tests.pages import ROOT

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


def digest_of(path: Path, text: str) -> str:
    """The digest of the workload of a sweep file with this text."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    sweep, _ = read_sweep(path)
    digest = workload_digest(sweep.workload, folder=path.parent)
    sys.path.remove(str(path.parent))
    del sys.modules[module_name(path)]
    return digest


@pytest.mark.parametrize(
    ("old", "new", "is_another"),
    [
        ("WIDTH = 3", "WIDTH = 4", True),
        ("nn.Linear(WIDTH, 1)", "nn.Linear(WIDTH, 2)", True),
        ("workload=Own()", "workload=Other()", True),
        ("[1]", "[1, 2]", False),
        ("sweep =", "sweep: Sweep =", False),
        ("WIDTH = 3", "WIDTH = (3)  # inputs", False),
    ],
)
def test_the_digest_follows_the_sweep_file_but_not_its_sweep(
    tmp_path: Path, old: str, new: str, is_another: bool
) -> None:
    one, other = digest_of(tmp_path / "a" / "own.py", OWN), digest_of(tmp_path / "b" / "own.py", OWN.replace(old, new))
    assert (one != other) == is_another


def test_of_a_sweep_of_dtsweeps_workload_the_file_does_not_count(tmp_path: Path) -> None:
    text = OWN.replace("workload=Own()", "workload=workloads.Gpt()")
    assert digest_of(tmp_path / "own.py", text) == workload_digest(workloads.Gpt(), folder=None)


def test_a_module_beside_the_sweep_file_counts_where_it_is_loaded(tmp_path: Path) -> None:
    # One folder and one name, so that the digest can differ only by what the module says.
    beside, sweep_file = tmp_path / "layer_beside.py", tmp_path / "own.py"
    digests = []
    for bias in (True, True, False):
        beside.write_text(f"BIAS = {bias}\n")
        digests.append(digest_of(sweep_file, f"import layer_beside\n{OWN}"))
        del sys.modules["layer_beside"]
    assert digests[0] == digests[1] != digests[2]
    without = digest_of(sweep_file, OWN)
    beside.unlink()
    assert digest_of(sweep_file, OWN) == without


def test_the_digest_follows_a_base_in_a_file_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "library"
    library.mkdir()
    monkeypatch.syspath_prepend(library)
    digests = []
    for width in (1, 2):
        (library / "base_elsewhere.py").write_text(f"WIDTH = {width}\nclass Base:\n    width = WIDTH\n")
        text = OWN.replace("class Own:", "class Own(base_elsewhere.Base):").replace(
            "WIDTH = 3", "import base_elsewhere"
        )
        digests.append(digest_of(tmp_path / "study" / "own.py", text))
        del sys.modules["base_elsewhere"]
    assert digests[0] != digests[1]


SCRIPT = """
from dataclasses import dataclass
from math import pi as factor
from dtsweep import Resources
from dtsweep.provenance import workload_digest
BATCHES = [1]
BASE = 2
WIDTH = BASE * 3
def net(): return WIDTH * factor
if __name__ == "__main__":
    @dataclass(frozen=True)
    class Own:
        wanted: Resources
        def build(self): return net() + 1
    def main():
        axes = dict(workers=range(5), wanted=Resources)
        print(workload_digest(Own(Resources()), folder=None))
    main()
"""


@pytest.mark.parametrize(
    ("old", "new", "is_another"),
    [
        ("[1]", "[1, 2]", False),
        ("range(5)", "range(6)", False),
        ("+ 1", "+ 2", True),
        ("* 3", "* 4", True),
        ("BASE = 2", "BASE = 3", True),
        ("import pi", "import tau", True),
        ("return WIDTH", "return -WIDTH", True),
    ],
    ids=["axis", "axis in main", "class", "constant", "constant of a constant", "import", "function"],
)
def test_of_a_script_that_runs_its_own_sweep_what_it_defines_counts(
    tmp_path: Path, old: str, new: str, is_another: bool
) -> None:
    digests = []
    for text in (SCRIPT, SCRIPT.replace(old, new)):
        (tmp_path / "study.py").write_text(text)
        run = [sys.executable, str(tmp_path / "study.py")]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        digests.append(subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests[0].strip()) == 16
    assert (digests[0] != digests[1]) == is_another


def test_of_a_class_inside_a_function_of_a_script_the_whole_script_counts(tmp_path: Path) -> None:
    define = "def make():\n    class Own:\n        size = 1\n    return Own()\n"
    text = f"from dtsweep.provenance import workload_digest\n{define}"
    digests = set()
    for size in (1, 2):
        (tmp_path / "study.py").write_text(
            text.replace("size = 1", f"size = {size}") + "print(workload_digest(make(), folder=None))\n"
        )
        run = [sys.executable, str(tmp_path / "study.py")]
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        digests.add(subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout)
    assert len(digests) == 2


def test_a_module_counts_though_it_has_the_name_of_one_of_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    digests = []
    for number in (1, 2):
        (tmp_path / "antigravity.py").write_text(f"class Own:\n    def build(self): return {number}\n")
        monkeypatch.delitem(sys.modules, "antigravity", raising=False)
        importlib.invalidate_caches()
        linecache.clearcache()
        own = importlib.import_module("antigravity").Own()
        digests.append(workload_digest(own, folder=None))
    assert digests[0] != digests[1]


def test_a_class_without_a_file_is_known_by_what_its_methods_do() -> None:
    digests = []
    for samples in (1, 1, 2):
        scope = {"__name__": "typed_in"}
        exec(f"class Typed:\n    def build(self):\n        return {samples}", scope)
        digests.append(workload_digest(scope["Typed"](), folder=None))  # type: ignore[operator]
    assert digests[0] == digests[1] != digests[2]


def slow_import_with(folder: Path, **packages: str) -> str:
    """What a Python says that has nothing installed but stand-ins for these packages; None imports a package."""
    for name, release in packages.items():
        (folder / f"{name}.py").write_text("raise ImportError('it is looked up, not imported')")
        (folder / f"{name}-{release}.dist-info").mkdir()
        (folder / f"{name}-{release}.dist-info" / "METADATA").write_text(f"Name: {name}\nVersion: {release}\n")
    done = subprocess.run(
        [sys.executable, "-S", "-c", "from dtsweep.provenance import slow_import; print(slow_import())"],
        env=os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize("jsonschema", ["4.25.0", "4.26.0", "5.0"])
def test_an_environment_where_ray_starts_slowly_says_what_to_do(tmp_path: Path, jsonschema: str) -> None:
    said = slow_import_with(tmp_path, rfc3987_syntax="1.1.0", jsonschema=jsonschema)
    assert said.startswith("rfc3987-syntax makes every start of Ray slower")
    assert "pip install 'jsonschema<4.25'" in said


@pytest.mark.parametrize(
    "packages",
    [
        {"rfc3987_syntax": "1.1.0", "jsonschema": "4.24.1"},
        {"rfc3987_syntax": "1.1.0"},
        {"jsonschema": "4.26.0"},
        {},
    ],
    ids=str,
)
def test_an_environment_without_both_packages_starts_fast(tmp_path: Path, packages: dict[str, str]) -> None:
    assert slow_import_with(tmp_path, **packages) == "None"


def test_versions_name_python_and_what_is_installed() -> None:
    assert set(versions()) == {"python_version", "dtsweep_version", "torch_version", "ray_version"}


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, "-C", str(folder), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A folder of a repository, with one file, committed."""
    folder = tmp_path / "study"
    folder.mkdir()
    (folder / "sweep.py").write_text("a = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "one")
    return folder


def test_a_folder_has_the_commit_that_is_checked_out(study: Path) -> None:
    assert git_commit(study) == git(study, "rev-parse", "HEAD")[:12]


def test_an_edited_staged_or_deleted_file_is_a_change(study: Path) -> None:
    commit = git_commit(study)
    (study / "sweep.py").write_text("a = 2\n")
    assert git_commit(study) == f"{commit}+changes"
    git(study, "add", ".")
    assert git_commit(study) == f"{commit}+changes"
    (study / "sweep.py").unlink()
    assert git_commit(study) == f"{commit}+changes"


def test_new_code_is_a_change_and_new_results_are_none(study: Path) -> None:
    commit = git_commit(study)
    (study / "results").mkdir()
    (study / "results" / "trials.parquet").write_bytes(b"")
    assert git_commit(study) == commit
    (study / "parts").mkdir()
    (study / "parts" / "my model.py").write_text("")
    assert git_commit(study) == f"{commit}+changes"


def test_changes_beside_the_folder_do_not_count(study: Path) -> None:
    commit = git_commit(study)
    (study.parent / "other.py").write_text("")
    assert git_commit(study) == commit


def test_no_folder_no_repository_and_no_commit_have_none(tmp_path: Path) -> None:
    assert git_commit(None) is None
    assert git_commit(tmp_path) is None
    assert git_commit(tmp_path / "missing") is None
    git(tmp_path, "init", "--quiet")
    assert git_commit(tmp_path) is None


def test_without_git_there_is_none(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(study))
    assert git_commit(study) is None


def test_a_hook_of_another_repository_does_not_mislead(
    study: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git_commit(study)
    other = tmp_path_factory.mktemp("other")
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    assert git_commit(study) == commit
