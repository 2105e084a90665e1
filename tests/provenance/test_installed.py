"""Declarations of installed packages: found, refused in one line, and not asked for in vain."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.installed import describe
from tests.pages import ROOT

GOOD = """\
from dtsweep.sweep.mode_info import Grid, ModeInfo

INFO = ModeInfo(
    implementation="dtsweep.sync.ring:Ring", semantics=lambda _: "exact", reads={"bucket_bytes": 7}
)
"""

SWEEP = """\
from dtsweep import Sweep, workloads

sweep = Sweep(workload=workloads.Gpt(), axes={"workers": [2], "sync": ["MODE"]})
"""

SCAN_SEEN = """\
import sys
opened = []
sys.addaudithook(lambda event, values: event == "open" and opened.append(str(values[0])))
from dtsweep import Point, SweepError, workloads
Point(sync="ring", compression="int8")
workloads.Gpt()
print(any(name.endswith("entry_points.txt") for name in opened))
try:
    Point(sync="rnig")
except SweepError as error:
    print(error)
print(any(name.endswith("entry_points.txt") for name in opened))
"""


def package(folder: Path, name: str, source: str, modes: Mapping[str, str]) -> None:
    """Install a package of one module that declares modes."""
    (folder / f"{name}.py").write_text(source)
    describe(folder, name, version="1.0", entry_points={"dtsweep.modes": modes})


def planned(folder: Path, mode: str) -> subprocess.CompletedProcess[str]:
    """Plan a sweep of the mode with the packages of the folder."""
    (folder / "study.py").write_text(SWEEP.replace("MODE", mode))
    return in_python("-m", "dtsweep", "plan", "study.py", folder=folder)


def in_python(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(folder)])
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_mode_of_a_package_is_planned_by_its_name(tmp_path: Path) -> None:
    package(tmp_path, "fast_net", GOOD, {"fast": "fast_net:INFO"})
    done = planned(tmp_path, "fast")
    assert done.returncode == 0, done.stderr
    assert "sync=fast" in done.stdout


def test_a_name_near_that_of_a_package_is_told(tmp_path: Path) -> None:
    package(tmp_path, "fast_net", GOOD, {"fast": "fast_net:INFO"})
    done = planned(tmp_path, "fasst")
    assert (done.returncode, done.stdout) == (2, "")
    assert "sync='fasst' is unknown; did you mean 'fast'? (study.py:3)" in done.stderr


@pytest.mark.parametrize(
    ("source", "place", "message"),
    [
        ("INFO = 3\n", "bad:INFO", "mode 'slow' of bad 1.0 declares 3 (bad:INFO), no ModeInfo;"),
        ("", "bad:INFO", "mode 'slow' of bad 1.0 can't be imported from bad:INFO: AttributeError:"),
        ("import nothing\n", "bad:INFO", "from bad:INFO: ModuleNotFoundError: No module named"),
        (GOOD.replace("bucket_bytes", "colour"), "bad:INFO", "reads 'colour'; a mode can read"),
        (GOOD.replace('"exact"', '"best"'), "bad:INFO", "has semantics='best'; allowed: exact,"),
        (GOOD.replace('"exact"', "_['x']"), "bad:INFO", "semantics of mode 'slow' of bad 1.0 fail"),
        (
            GOOD.replace("reads", 'agree="all", reads'),
            "bad:INFO",
            "has agree='all'; allowed: gradients, parameters, nothing",
        ),
        (
            GOOD.replace("reads", "grid=lambda p: Grid(data=p['workers'], model=2), reads"),
            "bad:INFO",
            "has Grid(data=2, model=2) for workers=2; data × model must be 2",
        ),
        (
            GOOD.replace("reads", "shares=lambda p: [1], reads"),
            "bad:INFO",
            "has shares=[1]; give a list of 2 numbers of samples",
        ),
        (
            GOOD.replace("reads", "participants=lambda p: 1, can_leave_out=('gradients',), reads"),
            "bad:INFO",
            "has participants and can_leave_out; leave can_leave_out empty",
        ),
        ("import torch\n" + GOOD, "bad:INFO", "imports torch with its declaration bad:INFO"),
    ],
)
def test_a_declaration_that_is_wrong_is_refused_in_one_line_with_the_next_step(
    tmp_path: Path, source: str, place: str, message: str
) -> None:
    package(tmp_path, "bad", source, {"slow": place})
    done = planned(tmp_path, "slow")
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert message in line
    assert "repair bad, or install a version that works" in line


def test_two_packages_with_one_name_are_refused(tmp_path: Path) -> None:
    for name in ("one", "two"):
        package(tmp_path, name, GOOD, {"fast": f"{name}:INFO"})
    (line,) = planned(tmp_path, "fast").stderr.splitlines()
    assert (
        "mode 'fast' of two 1.0 has a name that one 1.0 declares too; rename one, or uninstall two"
        in line
    )


def test_a_name_of_dtsweep_s_own_is_dtsweep_s_and_the_package_is_told_of_it(tmp_path: Path) -> None:
    package(tmp_path, "fast_net", GOOD, {"ring": "fast_net:INFO"})
    assert planned(tmp_path, "ring").returncode == 0
    ask = "from dtsweep.doctor.problems import find_declaration_problems as find; print(*find())"
    (line,) = in_python("-c", ask, folder=tmp_path).stdout.splitlines()
    assert line == (
        "mode 'ring' of fast_net 1.0 has the name of dtsweep's own; rename it there, or uninstall "
        "fast_net"
    )


def test_packages_are_looked_through_only_for_a_name_that_is_not_dtsweep_s_own(
    tmp_path: Path,
) -> None:
    package(tmp_path, "fast_net", GOOD, {"fast": "fast_net:INFO"})
    before, message, after = in_python("-c", SCAN_SEEN, folder=tmp_path).stdout.splitlines()
    assert (before, after) == ("False", "True")
    assert message == "sync='rnig' is unknown; did you mean 'ring'?"


def test_a_mode_reads_its_own_default(tmp_path: Path) -> None:
    package(tmp_path, "fast_net", GOOD, {"fast": "fast_net:INFO"})
    ask = "from dtsweep import Point; p = Point(sync='fast'); print(p.bucket_bytes, p.packages)"
    assert in_python("-c", ask, folder=tmp_path).stdout == "7 {'fast_net': '1.0'}\n"


def test_a_workload_of_a_package_is_an_attribute_and_a_wrong_name_is_near_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "nets.py").write_text("class Wide: ...\n")
    groups = {"dtsweep.workloads": {"Wide": "nets:Wide"}}
    describe(tmp_path, "nets", version="1.0", entry_points=groups)
    ask = "from dtsweep import workloads; print(workloads.Wide, 'Wide' in dir(workloads))"
    assert in_python("-c", ask, folder=tmp_path).stdout == "<class 'nets.Wide'> True\n"
    (tmp_path / "study.py").write_text(SWEEP.replace("Gpt", "Wied").replace("MODE", "ddp"))
    done = in_python("-m", "dtsweep", "plan", "study.py", folder=tmp_path)
    assert "no attribute 'Wied'; did you mean 'Wide'?" in done.stderr
