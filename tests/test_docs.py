"""The tables of docs/ agree with the code."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from docs.tables import TRIED
from dtsweep import Measure, Point
from dtsweep.inference.verdicts import Answer, KneeVerdict, Method, Reason, RunVerdict, Verdict
from dtsweep.measure.stopping import Rule
from dtsweep.results.statuses import FINAL, RETRIED
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.constraints import impossible
from dtsweep.sweep.mode_info import SEMANTICS
from dtsweep.sweep.modes import MODES
from tests.pages import ROOT, tables

PAGES = {"sweep-files.md": 4, "sync-modes.md": 3, "measuring.md": 1, **dict.fromkeys(TRIED, 1)}
"""Pages with tables that are made, and how many."""

WHOLE = ("columns.md", "llms.txt", "schemas/columns.json")
"""Files that are made."""


MOST_WORDS = {"measuring.md": 5_000, "sync-modes.md": 6_000}
"""Words of the longest pages of prose, as `wc -w` counts them."""


def test_the_pages_are_as_docs_tables_makes_them(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    shutil.copytree(ROOT / "docs", docs)
    for name in WHOLE:
        (docs / name).write_text("old")
    marks = r"(<!-- made by docs/tables.py: \w+ -->\n).*?(<!-- end -->\n)"
    for name, tables_in in PAGES.items():
        page = (docs / name).read_text("utf-8")
        without_tables, count = re.subn(marks, r"\1old\n\2", page, flags=re.DOTALL)
        (docs / name).write_text(without_tables, "utf-8")
        assert count == tables_in
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, docs / "tables.py"], env=environment, timeout=60, check=True)
    for name in (*WHOLE, *PAGES):
        made, known = ((folder / name).read_text("utf-8") for folder in (docs, ROOT / "docs"))
        assert made == known, f"docs/{name} is old; run: make docs"


@pytest.mark.parametrize("name", MOST_WORDS)
def test_a_page_can_be_read_in_half_an_hour(name: str) -> None:
    words = (ROOT / "docs" / name).read_text("utf-8").split()
    assert len(words) <= MOST_WORDS[name]


def test_every_mode_has_its_semantics_and_what_it_reads() -> None:
    rows = {row["mode"].strip("`"): row for row in tables("sync-modes.md", first="mode")}
    assert list(rows) == list(MODES)
    for name, row in rows.items():
        assert f"`{Point(sync=name).semantics}`" in row["semantics"]
        assert re.findall(r"`(\w+)`", row["reads"]) == list(MODES[name].reads)
        assert re.findall(r"`([\w.]+)`", row["default"]) == list(
            map(str, MODES[name].reads.values())
        )


def test_the_table_of_modes_and_compressions_says_what_can_be_measured() -> None:
    rows = {
        row.pop("carried by").strip("`"): row for row in tables("sync-modes.md", first="carried by")
    }
    assert list(rows) == list(MODES)
    for mode, row in rows.items():
        assert [name.strip("`") for name in row] == list(COMPRESSIONS)
        for name, cell in row.items():
            reason = impossible(Point(sync=mode, compression=name.strip("`")))
            assert (cell == "yes") == (reason is None)


def test_every_code_of_a_verdict_is_listed() -> None:
    listed = [row["code"].strip("`") for row in tables("results.md", first="column")]
    kinds = (Verdict, KneeVerdict, RunVerdict, Answer, Reason, Method)
    assert listed == [code.value for kind in kinds for code in kind]


def test_every_semantics_is_explained() -> None:
    text = (ROOT / "docs" / "sync-modes.md").read_text("utf-8")
    assert [name for name in SEMANTICS if f"`{name}`" not in text] == []


def test_what_is_kept_and_what_is_tried_again_is_what_the_code_says() -> None:
    kept, *_ = tables("results.md", first="newest status")
    assert set(re.findall(r"`(\w+)`", kept["newest status"])) == FINAL
    text = (ROOT / "docs" / "faults.md").read_text("utf-8")
    (sentence,) = re.findall(r"a trial that ended as ([^.]*) gets\s+two more attempts", text)
    assert set(re.findall(r"`(\w+)`", sentence)) == RETRIED


def test_every_rule_that_ends_a_window_is_listed() -> None:
    rows = tables("measuring.md", first="`stop_reason`")
    named = {word for row in rows for word in re.findall(r"\w+", row["`stop_reason`"])}
    fixed = Rule(Measure(half_width=None, min_steps=6, min_seconds=0, max_steps=7, max_seconds=9))
    limits = {
        fixed.limit(steps=steps, seconds=seconds)
        for steps, seconds in [(7, 0.0), (5, 9.0), (6, 0.0)]
    }
    shown = {Rule(Measure()).look(np.ones(60), seconds=60)}
    assert limits | shown == {"precise", "enough", "max_steps", "max_seconds"}
    assert named == limits | shown | {"ended"}


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["ddp", "fsdp"])
def test_the_programs_in_plain_pytorch_train(mode: str, tmp_path: Path) -> None:
    page = (ROOT / "docs" / "decide.md").read_text("utf-8")
    (program,) = re.findall(rf"^```python\n(# {mode}:.*?)^```$", page, re.DOTALL | re.MULTILINE)
    (tmp_path / "train.py").write_text(program, "utf-8")
    launch = [
        sys.executable,
        *["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"],
    ]
    done = subprocess.run(
        [*launch, "train.py"],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(r"loss \d+\.\d+\n", done.stdout)
