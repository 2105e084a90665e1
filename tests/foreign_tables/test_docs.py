"""The example of docs/import.md does what the page says."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

from tests.conftest import Command
from tests.pages import ROOT

PAGE = (ROOT / "docs" / "import.md").read_text("utf-8")


def block(language: str) -> str:
    (text,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


def test_the_example_prints_what_the_page_shows(tmp_path: Path, forked_command: Command) -> None:
    (tmp_path / "runs.csv").write_text(block("csv"))
    (tmp_path / "runs.toml").write_text(block("toml"))
    first, second = (shlex.split(line)[1:] for line in block("bash").splitlines())
    done = forked_command(*first, folder=tmp_path)
    assert done.stdout == block("text"), done.stderr
    report = forked_command(*second, folder=tmp_path)
    text = " ".join(report.stdout.split())
    assert "ResNet-50 · NVIDIA A10G · 6 trials: 5 ok, 1 skipped" in text
    assert "Not used: 1 imported row with numbers that can't all be true. runs.csv:6:" in text
    for phrase in ("canar", "window", "--goal", "torchrun"):
        assert phrase not in text.lower()
