"""What travels to the nodes, and what stays."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dtsweep import Sweep, workloads
from dtsweep.cluster.shipping import own_modules, pickled_workload, shipped_modules
from dtsweep.errors import SweepError
from dtsweep.sweep.file import read_sweep


def test_python_files_and_packages_travel_and_data_secrets_and_history_stay(tmp_path: Path) -> None:
    stay = (".env", ".git/config", "data/train.csv", "results/part.parquet", "notes.txt", "key.pem")
    for name in (*stay, "sweep.py", "model.py", "net/__init__.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    dtsweep, *beside = shipped_modules(tmp_path)
    assert Path(dtsweep).name == "dtsweep"
    assert [Path(path).name for path in beside] == ["model.py", "net", "sweep.py"]


def test_a_linked_module_travels_under_the_name_that_it_is_imported_by(tmp_path: Path) -> None:
    (tmp_path / "nets" / "v2").mkdir(parents=True)
    (tmp_path / "nets" / "v2" / "__init__.py").touch()
    (tmp_path / "layers_v2.py").touch()
    here = tmp_path / "here"
    here.mkdir()
    (here / "net").symlink_to(tmp_path / "nets" / "v2")
    (here / "layers.py").symlink_to(tmp_path / "layers_v2.py")
    (tmp_path / "there").symlink_to(here)
    linked = [here / "net", here / "layers.py"]
    assert shipped_modules(None, linked)[1:] == [*map(str, linked)]
    # By another way to the folder too, and once.
    there = tmp_path / "there"
    assert shipped_modules(there, [there / "net"])[1:] == [*map(str, linked)]


def test_a_training_script_travels_with_what_it_imports(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").touch()
    (tmp_path / "layers.py").touch()
    script = tmp_path / "train.py"
    script.write_text("def main():\n    import nets.deep, layers\n")
    sweep = Sweep(workload=workloads.Script(str(script)), axes={"workers": [1]})
    sent = [Path(path) for path in shipped_modules(None, own_modules(sweep))[1:]]
    assert sorted(sent) == [tmp_path / "layers.py", tmp_path / "nets", script]


LABELLED = """
from dataclasses import dataclass

import torch

from dtsweep import Sweep

@dataclass(frozen=True)
class Labelled:
    classes: int = 3
    ops: int = 4
    backends: int = 5

    def build(self):
        return torch.nn.Linear(self.classes, self.ops)

    def batch(self, samples, device):
        return torch.ones(len(samples), self.classes) * self.backends

    def loss(self, model, batch):
        return model(batch).square().mean()

    def _VF(self):
        return torch.cudnn, torch.config, self.deterministic

sweep = Sweep(workload=Labelled(), axes={"workers": [1, 2]})
"""


READ_BY_A_WORKER = """
import sys
from ray import cloudpickle

workload = cloudpickle.loads(sys.stdin.buffer.read())
assert workload.loss(workload.build(), workload.batch(range(2), None)).item() > 0
import torch
named = type(workload).batch.__globals__["torch"]
assert named is torch and torch.classes.loaded_libraries is not None and torch.ops.aten
print(workload)
"""


def test_a_field_with_the_name_of_one_of_torch_s_modules_travels(tmp_path: Path) -> None:
    (tmp_path / "labelled.py").write_text(LABELLED)
    sweep, _ = read_sweep(tmp_path / "labelled.py")
    code = pickled_workload(sweep)
    # In a process of its own: in this one its class is known.
    done = subprocess.run(
        [sys.executable, "-c", READ_BY_A_WORKER],
        input=code.pickled,
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stdout.decode() == "Labelled(classes=3, ops=4, backends=5)\n"


def test_what_can_t_travel_is_named_with_the_method_that_uses_it(tmp_path: Path) -> None:
    lock = "import threading\n\nLOCK = threading.Lock()\n"
    text = LABELLED.replace("import torch\n", f"import torch\n{lock}", 1)
    (tmp_path / "locked.py").write_text(text.replace("return torch.cudnn,", "return LOCK,"))
    sweep, _ = read_sweep(tmp_path / "locked.py")
    with pytest.raises(SweepError) as caught:
        pickled_workload(sweep)
    assert str(caught.value) == (
        "workload Labelled can't be sent to the workers: _VF() uses LOCK (cannot pickle "
        "'_thread.lock' object); make it in a method"
    )
