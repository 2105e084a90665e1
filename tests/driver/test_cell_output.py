"""Output of a run in a notebook, which is shared."""

from __future__ import annotations

from dtsweep.driver.cell_output import CellContent


def test_a_cell_of_a_run_holds_nothing_private() -> None:
    line = "gpu7.corp: rank_died: /home/ann/net.py: HF_TOKEN=hf_abcdefghijklmnopqrstuv"
    content = CellContent(done=1, total=2, state=line, notices=[line], last=[line])
    for shown in (content.as_html(), content.as_text()):
        assert shown.count("[host]: rank_died: ~/net.py: HF_TOKEN=[secret]") == 3
        assert "hf_abc" not in shown
