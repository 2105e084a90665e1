"""The example of docs/import.md, and the efficiencies of a published table."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dtsweep
from dtsweep.analysis import scaling
from tests.conftest import Command
from tests.foreign_tables.tables import imported
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "import.md").read_text("utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_example_prints_what_the_page_shows(
    tmp_path: Path, forked_command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lab.csv").write_text(block("csv"))
    monkeypatch.chdir(tmp_path)
    exec(block("python"), {})  # it is the page's
    first, second = (shlex.split(line)[1:] for line in block("bash").splitlines())
    done = forked_command(*first, folder=tmp_path)
    assert done.stdout == block("text"), done.stderr
    report = forked_command(*second, folder=tmp_path)
    text = " ".join(report.stdout.split())
    assert "ResNet-50 · NVIDIA A10G · 6 trials: 5 ok, 1 skipped" in text
    assert "Not used: 1 imported row with numbers that can't all be true. runs.csv:6:" in text
    for phrase in ("canar", "window", "--goal", "torchrun"):
        assert phrase not in text.lower()


@pytest.mark.skipif("DTSWEEP_TEST_DATA" not in os.environ, reason="DTSWEEP_TEST_DATA is not set")
def test_efficiency_of_the_published_ladder_is_the_published_one(tmp_path: Path) -> None:
    table = Path(os.environ["DTSWEEP_TEST_DATA"]) / "ladder" / "resnet50_v100.csv"
    known = pd.read_csv(table)
    rows = known[["gpus", "images_per_s"]].assign(sync="horovod", semantics="exact", backend="nccl")
    names = {"workers": "gpus", "samples_per_s": "images_per_s"}
    imported(tmp_path, rows.to_csv(index=False), names=names)
    frame = dtsweep.load(tmp_path / "results")
    computed = scaling(frame).set_index("workers")["efficiency"]
    known = known.set_index("gpus")
    # Its authors cut the fourth digit: 47,195 / (64 × 872) is 0.8457, and 0.845 in the table.
    efficiencies = known["published_efficiency"].dropna()
    assert dict(np.floor(computed * 1000) / 1000) == {1: 1.0, **efficiencies}
    assert dict(frame.set_index("workers")["samples_per_s"]) == dict(known["images_per_s"])
