"""A broken sweep file: one line with file, line, nearest right name and next step."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dtsweep.errors import SweepError
from dtsweep.sweep.file import module_name, read_sweep

HEAD = """\
'''A question?'''
import threading
from dataclasses import dataclass, field
from dtsweep.sweep.settings import Measure, Resources, Sweep

@dataclass(frozen=True)
class Net:
    width: int = 8
    dropout: float = 0.0
    options: dict = field(default_factory=dict)

    def build(self): ...
    def batch(self, samples, device): ...
    def loss(self, model, batch): ...

"""

SWEEP = (
    HEAD
    + """\
sweep = Sweep(
    workload=Net(),
    axes={
        'workers': [1, 2],
        AXIS
    },
    REST
)
"""
)


def written(folder: Path, text: str) -> Path:
    path = folder / "study.py"
    path.write_text(text, encoding="utf-8")
    return path


def refusal(path: Path, settings: dict[str, list[Any]] | None = None) -> str:
    with pytest.raises(SweepError) as caught:
        read_sweep(path, settings)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def refused(folder: Path, text: str) -> str:
    """Give the message without its place, which must be the line that is marked in the text."""
    path = written(folder, text)
    marked = [number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# <-")]
    message = refusal(path)
    place = f" ({path}:{marked[0]})"
    assert message.endswith(place), message
    return message.removesuffix(place)


def axis(text: str) -> str:
    return SWEEP.replace("AXIS", f"{text},  # <-").replace("REST", "")


def rest(text: str) -> str:
    return SWEEP.replace("AXIS", "").replace("REST", f"{text},  # <-")


def test_a_sweep_file_gives_its_sweep_and_its_points_and_knows_where_it_lies(
    tmp_path: Path,
) -> None:
    path = written(tmp_path, axis("'workload.width': [8, 16]"))
    sweep, found = read_sweep(path, {"workers": [2]})
    assert (sweep.name, sweep.file) == ("study", path)
    assert [(c.point.workers, c.point.workload.width) for c in found] == [(2, 8), (2, 16)]
    assert sys.modules[type(sweep.workload).__module__].__file__ == str(path)


def line(text: str, *, head: str = HEAD) -> str:
    return f"{head}{text}  # <-\n"


NET = "sweep = Sweep(workload=Net(), axes={})"
TYPOS = {
    axis("'micro_bacth': [1]"): "micro_batch",
    axis("'accum': [1]"): "accumulation",
    axis("'globalBatch': [1]"): "global_batch",
    axis("'workload.widht': [1]"): "workload.width",
    axis("'dropout': [0.1]"): "workload.dropout",
    axis("'sync': ['ddp', 'DPP']"): "ddp",
    axis("'compression': [None, 'int_8']"): "int8",
    axis("'sync': lambda p: 'parameter_sever'"): "parameter_server",
    axis("'placement': ['strict_spred']"): "strict_spread",
    rest("measure=Measure(repeat=3)"): "repeats",
    rest("resources=Resources(cpu_per_worker=1)"): "cpus_per_worker",
    line(NET.replace("axes", "axis")): "axes",
    line(NET.replace("Net()", "Net(widht=3)")): "width",
    line(NET.replace("Net()", "Nett()")): "Net",
    line("d.Swep(workload=Net(), axes={})", head=f"{HEAD}import dtsweep as d\n"): "Sweep",
    line("workloads.Gtp()", head="from dtsweep import workloads\n"): "Gpt",
    line("from dtsweep import Mesure", head=""): "Measure",
    line("import my_modle", head=""): "my_model",
    line(NET.replace("sweep =", "swep =")): "swep",
    line(NET, head=HEAD.replace("def build", "def biuld")): "biuld",
}


@pytest.mark.parametrize(("text", "right"), TYPOS.items(), ids=TYPOS.values())
def test_a_typo_is_answered_with_the_right_name(tmp_path: Path, text: str, right: str) -> None:
    (tmp_path / "my_model.py").touch()
    message = refused(tmp_path, text)
    answers = (f"did you mean {right!r}?", f"rename {right!r} to 'sweep'", "call it")
    assert any(answer in message for answer in answers)
    assert repr(right) in message.split(";")[-1]


SAMPLED = f"{HEAD}from ray import tune\nsweep = Sweep(workload=Net(), samples=2, axes={{\n"
LOCK = "Net(options={'lock': threading.Lock()})"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (axis("'micro_batch': 5"), "axis 'micro_batch' is 5, no list; write [5]"),
        (axis("'sync': 'ddp'"), "axis 'sync' is 'ddp', no list; write ['ddp']"),
        (axis("'micro_batch': {4, 8}"), "axis 'micro_batch' is a set, no list; write sorted(…)"),
        (axis("'learning_rate': [float('nan')]"), "'learning_rate' has nan, no JSON scalar; use"),
        (axis("'micro_batch': lambda p: 8 // 0"), "micro_batch failed for workers=1: Zero"),
        (rest("skip=lambda p: True"), "skip returned True; return a reason (a string) or None"),
        (
            line("'micro_batch': tune.sample_from(lambda _: 8)", head=SAMPLED) + "})",
            "'micro_batch' is tune.sample_from, which no seed reaches; write a function of the",
        ),
        (line(NET.replace("()", "")), "workload is the class Net; give an object of it: Net()"),
        (
            line(NET, head=HEAD.replace("@dataclass(frozen=True)", "")),
            "workload Net is not a dataclass; put @dataclass(frozen=True) above it",
        ),
        (line(NET, head=HEAD.replace("loss", "_x")), "it needs build, batch or dataset, and loss"),
        (line(NET.replace("Net()", LOCK)), "'options' of workload Net is {'lock': <unlocked"),
        (
            line(NET, head=HEAD.replace("width: int", "width: 'Whole'")),
            "an annotation of workload Net can't be read: name 'Whole' is not defined; import it",
        ),
        (line("sweep = {'workers': [1]}"), "write sweep = Sweep(workload=…, axes=…)"),
        (line("sweep = Sweep(axes={}"), "error: '(' was never closed: sweep = Sweep(axes={}"),
        (line("if True:\nsweep = 1"), "error: expected an indented block after 'if' statement on"),
        (line("raise SystemExit('no\\nGPU\\there')"), "SystemExit: no GPU here"),
        (line("import no_such_thing", head=""), "No module named 'no_such_thing'; install it"),
        (line("from my_model import Nte", head=""), "did you mean 'Net'?"),
        (line("import raises", head=""), "ValueError: two lines, raised in raises.py:2"),
        (line("import unfinished", head=""), "unfinished.py:1: '(' was never closed"),
    ],
)
def test_each_mistake_is_one_line_with_its_place(
    tmp_path: Path, text: str, message: str, monkeypatch: Any
) -> None:
    (tmp_path / "my_model.py").write_text("Net = 1\n")
    (tmp_path / "raises.py").write_text("\nraise ValueError('two\\nlines')\n")
    (tmp_path / "unfinished.py").write_text("f(\n")
    # Each sweep file has a process of its own; here the modules beside them have the same names.
    for name in ("my_model", "raises", "unfinished"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert message in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "names = ['micro_batch']\nSweep(workload=Net(), axes={\n'micro_batch': 5,  # <-\n})\n",
            "axis 'micro_batch' is 5, no list",
        ),
        (
            "A = {\n'micro_batch': 5,  # <-\n}\nsweep = Sweep(workload=Net(), axes=A)\n",
            "is 5, no list",
        ),
        ("sweep = Sweep(workload=Net(), axes={'micro' + '_batch': 5})  # <-\n", "is 5, no list"),
        (
            "def half(p):\n    return p.workers / 0  # <-\n"
            "sweep = Sweep(workload=Net(), axes={'micro_batch': half})\n",
            "micro_batch failed for the default point: ZeroDivisionError: division by zero",
        ),
    ],
)
def test_the_line_is_that_of_the_axis_or_of_the_function_that_failed(
    tmp_path: Path, text: str, message: str
) -> None:
    assert message in refused(tmp_path, HEAD + text)


def test_a_wrong_set_blames_the_option_and_no_line_of_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, axis("'sync': ['ddp']"))
    wrong: dict[str, tuple[list[Any], str]] = {
        "micro_bacth": ([4], "did you mean 'micro_batch'?"),
        "sync": (["dpp"], "did you mean 'ddp'?"),
        "workers": ([0], "workers=0 must be at least 1"),
        "workload.width": (["x"], "workload.width='x' must be a whole number"),
    }
    for name, (values, message) in wrong.items():
        said = refusal(path, {name: values})
        assert said.startswith("--set: ")
        assert said.endswith(message)
    broken = written(tmp_path, rest("skip=lambda p: 1 / 0"))
    said = refusal(broken, {"workers": [2]})
    assert said.startswith("skip failed for workers=2: ZeroDivisionError")


def test_a_skip_that_returns_false_keeps_the_point(tmp_path: Path) -> None:
    path = written(tmp_path, rest("skip=lambda p: p.workers > 9 and 'too many'"))
    _, listed = read_sweep(path)
    assert {candidate.reason for candidate in listed} == {None}


NEAR = "did you mean 'sweeps/batchsize.py'?"


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("sweeps/batchsiz.py", f"there is no file 'sweeps/batchsiz.py'; {NEAR}"),
        ("batchsize", f"there is no file 'batchsize'; {NEAR}"),
        ("sweeps", "sweeps is a folder; give the path of a sweep file"),
        ("no/where.py", "there is no file 'no/where.py'; give the path of a sweep file"),
        ("notes.txt", "notes.txt is not a Python file; give a sweep file, whose name ends in .py"),
        ("sweeps/workers.py", "the file defines no 'sweep'; write sweep = Sweep(workload=…, axes"),
    ],
)
def test_a_path_that_is_no_sweep_file_is_answered_with_one_that_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    (tmp_path / "sweeps").mkdir()
    for name in ("sweeps/batchsize.py", "sweeps/workers.py", "notes.txt"):
        (tmp_path / name).touch()
    monkeypatch.chdir(tmp_path)
    assert refusal(Path(path)).startswith(message)


@pytest.mark.parametrize("lead", ["\ufeff", "# -*- coding: latin-1 -*-\n# é\n"])
def test_a_file_is_read_as_python_reads_it(tmp_path: Path, lead: str) -> None:
    path = tmp_path / "my-sweep.v2.py"
    text = f"{lead}{HEAD}assert Net.__annotations__['width'] is int\n{NET}\n"
    path.write_bytes(text.encode("latin-1" if "coding" in lead else "utf-8"))
    assert len(read_sweep(path)[1]) == 1
    assert module_name(path).isidentifier()
    for broken, message in ((b"x = '\xff'\n", "error: (unicode error)"), (b"\0", "null bytes")):
        path.write_bytes(broken)
        assert message in refusal(path)


def test_a_training_script_is_not_executed_in_search_of_a_sweep(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("import torch\nraise RuntimeError('it trains')")
    with pytest.raises(SweepError, match=r"is not a sweep file; .* dtsweep script .*train\.py"):
        read_sweep(script)
