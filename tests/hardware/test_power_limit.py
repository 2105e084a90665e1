"""A power limit is set, enforced and given back; NVIDIA's library is stood in for."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dtsweep.hardware import power_limit
from dtsweep.hardware.fingerprint import fingerprint
from dtsweep.hardware.nvml import Gpu, find_gpu
from dtsweep.hardware.power_limit import PowerLimitError, give_back, give_back_all, power_limited
from tests.pages import ROOT
from tests.stand_in_nvml import GPU, UUID, MissingNvml, StandInNvml, torch_sees_a_gpu

__all__ = ["torch_sees_a_gpu"]

SET = "nvmlDeviceSetPowerManagementLimit"

HOLD = """\
import sys
from pathlib import Path
from dtsweep.hardware import power_limit
from dtsweep.hardware.nvml import find_gpu
from tests.stand_in_nvml import UUID, StandInNvml
power_limit.FOLDER = Path(sys.argv[1])
with power_limit.power_limited(find_gpu(UUID, nvml=StandInNvml()), 300):
    print("set", flush=True)
    sys.stdin.read()
"""
"""Sets a limit and holds it until it is killed."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(power_limit, "FOLDER", tmp_path)
    monkeypatch.setattr(power_limit, "ENFORCED_S", 0.0)
    monkeypatch.setattr(power_limit, "ENDS_S", 0.0)


def gpu_of(nvml: Any) -> Gpu | None:
    return find_gpu(UUID, nvml=nvml)


def known_gpu(nvml: StandInNvml) -> Gpu:
    gpu = gpu_of(nvml)
    assert gpu is not None
    return gpu


def note_limit(nvml: StandInNvml) -> None:
    """Leave the file of a killed process, which had set 300 W in place of 700 W."""
    file = power_limit._file_of(known_gpu(nvml))
    file.parent.mkdir(mode=0o700)
    file.write_text("[700000, 300000]")


def refusal(nvml: Any, watts: float = 300) -> str:
    """The reason for which a limit is refused; nothing is done under it."""
    with pytest.raises(PowerLimitError) as error, power_limited(gpu_of(nvml), watts):
        pytest.fail("the limit was not refused")
    return str(error.value)


@contextmanager
def holding_process(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which has set 300 W."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, folder],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "set\n"
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize(
    "text", ["\0\0\0", "[700000", "{}", "[1, 2, 3]", "[null, 3]", '["a", 3]', "[NaN, 1]", "ä"]
)
def test_a_damaged_file_stops_nobody(text: str) -> None:
    nvml = StandInNvml(power_limit_mw=300_000)
    note_limit(nvml)
    file = power_limit._file_of(known_gpu(nvml))
    file.write_text(text)
    assert give_back(known_gpu(nvml)) is None
    assert power_limit.earlier_limit_w(known_gpu(nvml)) is None
    with power_limited(gpu_of(nvml), 400):
        assert nvml.power_limit_mw == 400_000
    assert nvml.power_limit_mw == 300_000


def test_a_process_does_not_undo_the_limit_that_it_holds() -> None:
    nvml = StandInNvml(power_limit_mw=700_000)
    with power_limited(gpu_of(nvml), 300):
        assert give_back(known_gpu(nvml)) is None
        assert power_limit.earlier_limit_w(known_gpu(nvml)) is None
        assert nvml.power_limit_mw == 300_000
    assert nvml.power_limit_mw == 700_000


def test_a_machine_is_described_by_the_limit_that_its_gpu_has_outside_of_trials() -> None:
    nvml = StandInNvml(power_limit_mw=300_000)
    note_limit(nvml)
    assert power_limit.earlier_limit_w(known_gpu(nvml)) == 700


def test_a_limit_holds_inside_and_the_earlier_one_is_given_back() -> None:
    nvml = StandInNvml(power_limit_mw=650_000)
    with power_limited(gpu_of(nvml), 312.5):
        assert nvml.power_limit_mw == 312_500
    assert nvml.power_limit_mw == 650_000


def test_the_earlier_limit_is_given_back_after_an_exception() -> None:
    nvml = StandInNvml()
    with pytest.raises(ValueError, match="of a workload"), power_limited(gpu_of(nvml), 300):
        raise ValueError("of a workload")
    assert nvml.power_limit_mw == 700_000


def test_a_limit_without_rights_is_refused_with_the_way_out() -> None:
    nvml = StandInNvml(forbidden=[SET])
    assert refusal(nvml) == (
        "no permission to set power_limit=300; run as root, or set it by `sudo nvidia-smi -pl 300` "
        "and leave power_limit out"
    )
    assert nvml.power_limit_mw == 700_000


def test_a_limit_that_the_gpu_has_already_needs_no_rights() -> None:
    nvml = StandInNvml(forbidden=[SET], power_limit_mw=300_000)
    with power_limited(gpu_of(nvml), 300):
        assert nvml.power_limit_mw == 300_000


@pytest.mark.parametrize("watts", [199.9, 701])
def test_a_limit_out_of_range_is_refused_with_the_range(watts: float) -> None:
    nvml = StandInNvml()
    assert refusal(nvml, watts) == (
        f"power_limit={watts:g} is outside of 200 to 700 W, the range of this GPU; use a value "
        "inside"
    )
    assert nvml.power_limit_mw == 700_000


@pytest.mark.parametrize("function", [SET, "nvmlDeviceGetPowerManagementLimitConstraints"])
def test_a_gpu_whose_limit_cannot_be_set_is_refused(function: str) -> None:
    nvml = StandInNvml(unsupported=[function])
    assert refusal(nvml).endswith("can't be set (NVML: Not Supported); leave power_limit out")


@pytest.mark.parametrize("nvml", [MissingNvml(), StandInNvml(mig=1)])
def test_a_gpu_that_nvml_does_not_know_and_a_slice_are_refused(nvml: Any) -> None:
    assert refusal(nvml) == (
        "NVML knows no power limit of this GPU, or of a slice (MIG); leave power_limit out"
    )


def test_a_limit_that_is_not_enforced_is_refused_and_given_back() -> None:
    nvml = StandInNvml(other_limit_mw=250_000)
    assert refusal(nvml) == (
        "the GPU enforces 250 W, not power_limit=300: another limit is lower, "
        "see nvidia-smi -q -d POWER"
    )
    assert nvml.power_limit_mw == 700_000


def test_a_limit_that_is_enforced_late_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    nvml = StandInNvml(other_limit_mw=250_000)
    monkeypatch.setattr(power_limit, "ENFORCED_S", 60.0)
    monkeypatch.setattr(power_limit.time, "sleep", lambda _: setattr(nvml, "other_limit_mw", 10**6))
    with power_limited(gpu_of(nvml), 300):
        assert nvml.power_limit_mw == 300_000


def test_a_limit_that_cannot_be_given_back_is_named_and_tried_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    nvml = StandInNvml()
    with power_limited(gpu_of(nvml), 300):
        nvml.forbidden = [SET]
    reason = (
        "the power limit of this GPU is still 300 W (NVML: Insufficient Permissions); "
        "set it back by `sudo nvidia-smi -pl 700`"
    )
    assert capsys.readouterr().err == f"dtsweep: {reason}\n"
    assert give_back(known_gpu(nvml)) == refusal(nvml, 400) == reason
    nvml.forbidden = []
    assert give_back(known_gpu(nvml)) is None
    assert nvml.power_limit_mw == 700_000


def test_nothing_is_changed_where_no_limit_was_set(tmp_path: Path) -> None:
    nvml = StandInNvml(power_limit_mw=300_000, forbidden=[SET])
    assert give_back(known_gpu(nvml)) is None
    assert give_back_all([UUID], nvml=nvml) == []
    assert list(tmp_path.iterdir()) == []


def test_the_limit_of_a_killed_process_is_given_back_and_that_of_a_living_one_stays(
    tmp_path: Path,
) -> None:
    # The stand-ins of two processes share no limit: this is what the other process has set.
    nvml = StandInNvml(power_limit_mw=300_000)
    with holding_process(tmp_path) as process:
        assert give_back(known_gpu(nvml)) is None
        assert nvml.power_limit_mw == 300_000
        assert refusal(nvml) == (
            "dtsweep has set the power limit of this GPU for another trial; wait for its end"
        )
        process.kill()
        process.wait()
    assert give_back_all([UUID], nvml=nvml) == []
    assert nvml.power_limit_mw == 700_000


def test_a_trial_with_another_limit_first_gives_back_that_of_a_killed_one() -> None:
    nvml = StandInNvml(power_limit_mw=300_000)
    note_limit(nvml)
    with power_limited(gpu_of(nvml), 400):
        assert nvml.power_limit_mw == 400_000
    assert nvml.power_limit_mw == 700_000


def test_a_limit_that_somebody_else_has_changed_since_stays() -> None:
    nvml = StandInNvml(power_limit_mw=500_000)
    note_limit(nvml)
    assert give_back(known_gpu(nvml)) is None
    assert nvml.power_limit_mw == 500_000


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_the_machine_is_the_same_before_and_after_a_limit() -> None:
    nvml = StandInNvml(power_limit_mw=650_000)
    before = json.dumps(fingerprint(GPU, nvml=nvml)["machine"])
    with power_limited(gpu_of(nvml), 300):
        pass
    assert json.dumps(fingerprint(GPU, nvml=nvml)["machine"]) == before
    assert '"power_limit_w": 650' in before
