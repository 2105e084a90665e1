"""Commands and code of the README and docs/ run, and their links lead somewhere."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

import dtsweep
from dtsweep.cli import cli
from dtsweep.sweep.file import read_sweep
from tests.conftest import Command
from tests.pages import PAGES, ROOT, Block, blocks, commands, make_results, make_study

NOT_RUN = (
    "make gpu-checklist PYTHON_GPU=python3",
    "make gpu-checklist-node PYTHON_GPU=python3",
    "watch -n 20 dtsweep status results/batchsize",
    "sbatch --nodes=2 --gpus-per-node=8 --time=04:00:00 clusters/slurm.sbatch sweeps/batchsize.py "
    "--set sync=ddp",
)
"""They download, need a GPU or Slurm (`test_slurm.py` has one), or do not end."""

OF_SLURM = {"--dependency", "--exclusive", "--nodes", "--switches"}

ONE_TRIAL = "--set workers=1 --set micro_batch=4 --set accumulation=1 --set sync=ddp --results one"
"""What is left of a run of the README; other options of the same name win."""

RUNS = sorted({line for line in commands() if line.startswith("dtsweep sweeps/")})
IN_PROCESS = [line for line in commands() if line.endswith(" --in-process")]
READERS = tuple(
    f"dtsweep {name} "
    for name in ("plan", "status", "report", "recommend", "predict", "difference", "compare")
)
READS = [line for line in commands() if line.startswith(READERS) and "--html" not in line]
PAGE_FILES = [line for line in dict.fromkeys(commands()) if line.startswith("dtsweep report ")]
PAGE_FILES = [line for line in PAGE_FILES if "--html" in line]
EXPORTS = [line for line in commands() if line.startswith("dtsweep export ")]
SCRIPTS = [line for line in commands() if line.startswith("dtsweep script ")]
DOCTOR = "dtsweep doctor"
"""Run in `tests/doctor/test_diagnose.py`."""

CLOUD = [
    line
    for line in commands()
    if line.startswith(("ray get-auth-token ", "ray up ", "ray exec ", "ray down "))
]
"""Not run."""

BY_RAY = [line for line in commands() if line.startswith(("ray start ", "ray job ", "export RAY_"))]
"""Run in `tests/driver`, with addresses of this machine.

`test_hosts.py` and `test_connect.py` run `ray start`, with more options. `test_connect.py` runs
jobs, and sets what is exported as variables.
"""

LINKING = sorted(
    page
    for folder in ("", "benchmarks", "docs", "docs/adr", "docs/log", "sweeps")
    for page in (ROOT / folder).glob("*.md")
)
PYTHON = blocks("python")
SWEEPS = [block for block in PYTHON if "sweep = Sweep(" in block.text]
CODE = [block for block in PYTHON if block not in SWEEPS]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the example sweeps and results of batchsize.py."""
    folder = tmp_path_factory.mktemp("study")
    make_study(folder)
    for name in ("before", "after"):
        make_results(folder, name)
    return folder


def test_every_command_is_run_or_named_as_not_run() -> None:
    assert {
        *RUNS,
        *IN_PROCESS,
        *READS,
        *PAGE_FILES,
        *EXPORTS,
        *SCRIPTS,
        DOCTOR,
        *NOT_RUN,
        *CLOUD,
        *BY_RAY,
        "make sweep",
    } == {*commands()}


@pytest.mark.slow
@pytest.mark.parametrize("line", READS)
def test_what_reads_results_prints_something(
    line: str, study: Path, dtsweep_command: Command, forked_command: Command
) -> None:
    command, *arguments = shlex.split(line)[1:]
    # One line of each command is a process with imports of its own.
    if line == next(each for each in READS if shlex.split(each)[1] == command):
        run = dtsweep_command
    else:
        run = forked_command
    done = run(command, *arguments, folder=study)
    assert done.returncode == 0, done.stderr
    assert done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("line", PAGE_FILES)
def test_a_page_that_is_shown_is_written(line: str, study: Path, forked_command: Command) -> None:
    words = shlex.split(line)
    done = forked_command(*words[1:], folder=study)
    assert done.returncode == 0, done.stderr
    assert "<!doctype html>" in (study / words[-1]).read_text("utf-8")[:100].lower()


@pytest.mark.slow
@pytest.mark.parametrize("line", EXPORTS)
def test_an_export_that_is_shown_writes_its_file(
    line: str, study: Path, forked_command: Command
) -> None:
    words = shlex.split(line)
    done = forked_command(*words[1:], folder=study)
    assert done.returncode == 0, done.stderr
    assert (study / words[words.index("--out") + 1]).stat().st_size


@pytest.mark.parametrize("line", SCRIPTS)
def test_a_script_that_is_shown_has_a_sweep_file(
    line: str, tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "train.py").write_text("")
    own, dashes, arguments = line.partition(" -- ")
    save = "" if "--save" in own else " --save sweep.py"
    words = shlex.split(f"{own}{save}{dashes}{arguments}")[1:]
    done = forked_command(*words, folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "sweep.py").exists()


@pytest.mark.slow
@pytest.mark.ray
def test_the_runs_of_the_readme_end_with_a_frontier(
    study: Path, dtsweep_command: Command, ray_address: str
) -> None:
    for line in RUNS:
        # Values of --set add up; a world of two workers is a session more.
        arguments = line.partition("dtsweep ")[2].replace("workers=1,2", "workers=1")
        done = dtsweep_command(
            *shlex.split(f"{arguments} {ONE_TRIAL} --address {ray_address}"), folder=study
        )
        assert done.returncode == 0, done.stderr
        assert "Frontier" in done.stdout


@pytest.mark.parametrize("line", IN_PROCESS)
def test_a_run_in_this_process_ends_with_a_frontier(
    line: str, study: Path, dtsweep_command: Command
) -> None:
    done = dtsweep_command(*shlex.split(line)[1:], "--set", "workload.width=16", folder=study)
    assert done.returncode == 0, done.stderr
    assert "Frontier" in done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_sweep_runs_the_first_sweep() -> None:
    done = subprocess.run(
        ["make", "-n", "sweep"], cwd=ROOT, capture_output=True, text=True, timeout=60, check=True
    )
    assert any(line.endswith("-m dtsweep sweeps/batchsize.py") for line in done.stdout.splitlines())


@pytest.mark.parametrize("block", SWEEPS, ids=str)
def test_a_sweep_that_is_shown_can_be_planned(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "shown.py"
    file.write_text(block.text, "utf-8")
    _, found = read_sweep(file)
    assert [candidate for candidate in found if candidate.reason is None]


def test_the_readme_shows_the_first_sweep_as_it_is() -> None:
    shown = [block.text for block in SWEEPS if block.page == "README.md"]
    assert shown == [(ROOT / "sweeps" / "batchsize.py").read_text("utf-8")]


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 160


@pytest.mark.parametrize("block", CODE, ids=str)
def test_code_that_is_shown_prints_something(
    block: Block, study: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(study)
    exec(compile(block.text, str(block), "exec"), {})
    assert capsys.readouterr().out.strip()


def test_the_map_of_the_code_is_that_of_the_package() -> None:
    order = re.findall(r"^    ([a-z].*)$", dtsweep.__doc__ or "", re.MULTILINE)
    assert "\n".join(order) in (ROOT / "CONTRIBUTING.md").read_text("utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text("utf-8"))
    assert links
    assert not [link for link in links if "://" not in link and not (page.parent / link).exists()]


def _anchors(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_headings(page: Path) -> None:
    links = re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text("utf-8"))
    targets = [((page.parent / file).resolve() if file else page, name) for file, name in links]
    assert [name for file, name in targets if name not in _anchors(file)] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_options_that_are_named_exist(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    text = "\n".join(
        re.sub("`(ray|docker|torchrun|pip|python -m benchmarks\\.\\w+) [^`]*`| -- .*", "", line)
        for line in lines
        if not line.startswith(("COPY ", "RUN ", "ray ", "torchrun ", "sbatch "))
        and " torchrun --" not in line
    )
    known = {
        option
        for command in cli.commands.values()
        for parameter in command.params
        for option in parameter.opts
    }
    assert set(re.findall(r"(?<![\w.-])--[a-z][a-z-]*", text)) <= known | OF_SLURM
