"""What a window tells of its device and host: on a stand-in of NVML, and a clock of its own."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dtsweep.hardware.host import cpu_energy_counters, cpu_energy_j
from dtsweep.hardware.nvml import Gpu
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.results.schema import RANKS
from dtsweep.results.statuses import FLAG_MEANINGS
from tests.stand_in_nvml import GPU, MissingNvml, StandInNvml, torch_sees_a_gpu

__all__ = ["torch_sees_a_gpu"]

pytestmark = pytest.mark.usefixtures("torch_sees_a_gpu")

CPU = torch.device("cpu")
OWN = os.getpid()
HOST_COLUMNS = {
    *("process_cpus", "host_cpu_share", "host_memory_used_bytes", "cpu_energy_j"),
    *("network_sent_bytes", "network_received_bytes"),
}
NEVER_S = 1e6


class Watched:
    """Telemetry that takes a reading when the test says so, on a clock that the test turns."""

    def __init__(self, nvml: Any, device: torch.device = GPU, **arguments: Any) -> None:
        self.seconds, self.nvml = 100.0, nvml
        self.telemetry = Telemetry(
            device, interval_s=NEVER_S, nvml=nvml, now=lambda: self.seconds, **arguments
        )

    def change(self, **fields: Any) -> None:
        for name, value in fields.items():
            setattr(self.nvml, name, value)

    def read(self, **fields: Any) -> None:
        """Take a reading, a second later, of a device of which this has changed."""
        self.change(**fields)
        self.seconds += 1
        self.telemetry.read()

    def window(self, *readings: dict[str, Any], seconds: float = 10, **at_end: Any) -> Any:
        """A window with these readings; without any there is one at its end."""
        self.telemetry.start()
        for fields in readings:
            self.read(**fields)
        self.change(**at_end)
        self.seconds += seconds - len(readings)
        return self.telemetry.stop()


def sampling_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "dtsweep-telemetry"]


def test_a_cpu_has_the_columns_of_its_host_alone_and_needs_no_reading() -> None:
    columns = Watched(None, CPU).window()
    assert set(columns) == HOST_COLUMNS | {"telemetry_flags"}
    assert columns["telemetry_flags"] == []
    assert columns["process_cpus"] > 0
    assert columns["host_cpu_share"] is None or 0 <= columns["host_cpu_share"] <= 1
    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert 0 < columns["host_memory_used_bytes"] < memory_bytes


def test_every_column_is_one_of_ranks_and_every_flag_is_declared() -> None:
    columns = Watched(StandInNvml(limits=0x20, pids=[OWN, 1])).window(seconds=2)
    flags = columns.pop("telemetry_flags")
    assert set(columns) <= {column.name for column in RANKS}
    assert flags == ["shared_gpu", "throttled", "window_short"]
    assert set(flags) <= set(FLAG_MEANINGS)


def test_a_process_that_works_all_the_time_keeps_one_cpu_busy() -> None:
    watched = Watched(None, CPU)
    watched.telemetry.start()
    began = time.process_time()
    while time.process_time() < began + 0.1:
        sum(range(1000))
    watched.seconds += 0.1
    assert 1 <= watched.telemetry.stop()["process_cpus"] < 2


def test_clocks_are_means_and_memory_and_temperature_the_highest() -> None:
    nvml = StandInNvml(clock_mhz=1000, memory_bytes=5, temperature=70, utilization=80)
    later = {"clock_mhz": 1600, "memory_bytes": 4, "temperature": 65, "utilization": 100}
    columns = Watched(nvml).window({}, later, seconds=2)
    names = ("sm_clock_hz", "device_memory_used_bytes", "temperature_celsius")
    assert [columns[name] for name in names] == [1.3e9, 5, 70]
    assert columns["device_utilization"] == 0.9


@pytest.mark.parametrize(
    ("seconds", "used_mj", "energy_j", "power_w", "flags"),
    [
        (10, 5_000_000, 5000, 500, []),
        (5, 0, 0, 0, []),
        # Without the counter, power is what was read, if that does not look back before the window.
        (4.9, 0, None, 250, ["window_short"]),
        (0.9, 0, None, None, ["window_short"]),
    ],
)
def test_energy_is_the_counter_s_difference_in_windows_of_five_seconds_and_power_follows_from_it(
    seconds: float, used_mj: int, energy_j: float, power_w: float, flags: list[str]
) -> None:
    watched = Watched(StandInNvml(energy_mj=1000, power_mw=250_000))
    columns = watched.window(seconds=seconds, energy_mj=1000 + used_mj)
    assert (columns["energy_j"], columns["power_w"]) == pytest.approx((energy_j, power_w))
    assert columns["telemetry_flags"] == flags
    assert (columns["device_utilization"] is None) == (seconds < 1)
    assert columns["sm_clock_hz"] == 1.9e9


@pytest.mark.parametrize("has_old_driver", [False, True])
@pytest.mark.parametrize(
    ("limits", "reasons", "is_throttled"),
    [
        ([0x0], "", False),
        ([0x1], "", False),
        ([0x2], "ApplicationsClocksSetting", False),
        ([0x1 | 0x4], "SwPowerCap", False),
        ([0x10 | 0x100], "DisplayClockSetting SyncBoost", False),
        ([0x2 | 0x40], "ApplicationsClocksSetting HwThermalSlowdown", True),
        ([0x4 | 0x20], "SwPowerCap SwThermalSlowdown", True),
        ([0x8], "HwSlowdown", True),
        ([0x80], "HwPowerBrakeSlowdown", True),
        # Of all readings, each named once.
        ([0x4, 0x4, 0x4 | 0x40, 0x1], "HwThermalSlowdown SwPowerCap", True),
    ],
)
def test_heat_and_hardware_throttle_but_a_power_cap_and_chosen_clocks_do_not(
    limits: list[int], reasons: str, is_throttled: bool, has_old_driver: bool
) -> None:
    nvml = StandInNvml(has_old_driver=has_old_driver)
    columns = Watched(nvml).window(*({"limits": each} for each in limits))
    assert columns["throttle_reasons"] == reasons.split()
    assert columns["telemetry_flags"] == (["throttled"] if is_throttled else [])


def test_the_power_limit_is_that_at_the_windows_end() -> None:
    assert Watched(StandInNvml()).window(other_limit_mw=350_000)["power_limit_w"] == 350


@pytest.mark.parametrize(
    ("pids", "mps_pids", "own_pids", "others"),
    [
        ([OWN], [], None, 0),
        ([OWN, 7], [], None, 1),
        ([OWN, 7], [], {OWN, 7}, 0),
        # In a container: all processes hidden, or ours under the host's numbers.
        ([], [], None, None),
        ([70_001], [], None, 0),
        ([70_001, 70_002], [], {OWN, 7}, 0),
        ([70_001, 70_002], [], None, 1),
        # The server of MPS alone, of which NVML shows no program.
        ([9], [], None, None),
        ([9], [OWN], None, 0),
        ([9], [OWN, 7], None, 1),
        ([OWN, 8, 9], [], None, 1),
    ],
)
def test_only_processes_that_are_not_ours_share_the_device_and_the_server_of_mps_is_none(
    pids: list[int], mps_pids: list[int], own_pids: set[int] | None, others: int | None
) -> None:
    names = {9: "/usr/bin/nvidia-cuda-mps-server", 8: "/usr/bin/python3"}
    nvml = StandInNvml(pids=pids, mps_pids=mps_pids, names=names)
    columns = Watched(nvml, own_pids=own_pids).window()
    assert columns["other_processes"] == others
    assert ("shared_gpu" in columns["telemetry_flags"]) == bool(others)


def test_errors_of_the_device_count_in_the_window_in_which_they_came() -> None:
    watched = Watched(StandInNvml(errors=[(0x8, 31)]))
    for errors, names, flags in (
        ([(0x1, 0), (0x8, 63)], ["ECC single-bit", "Xid 63"], ["ecc", "xid"]),
        ([(0x2, 0)], ["ECC double-bit"], ["ecc"]),
        ([], [], []),
    ):
        columns = watched.window(errors=errors)
        assert (columns["device_errors"], columns["telemetry_flags"]) == (names, flags)


def test_a_library_of_another_package_that_has_little_is_read_as_far_as_it_goes() -> None:
    library = SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=7),
        nvmlDeviceGetSupportedEventTypes=lambda _: 0x8,
    )
    gpu = Gpu("handle", library)
    assert (gpu.read().memory_bytes, gpu.read().power_w) == (7, None)
    assert gpu.watch_errors() is None


@pytest.mark.parametrize(
    ("function", "column"),
    [
        ("nvmlDeviceGetUtilizationRates", "device_utilization"),
        ("nvmlDeviceGetMemoryInfo", "device_memory_used_bytes"),
        ("nvmlDeviceGetClockInfo", "sm_clock_hz"),
        ("nvmlDeviceGetTemperature", "temperature_celsius"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
        ("nvmlDeviceGetCurrentClocksEventReasons", "throttle_reasons"),
        ("nvmlDeviceGetTotalEnergyConsumption", "energy_j"),
        ("nvmlDeviceGetSupportedEventTypes", "device_errors"),
        ("nvmlDeviceRegisterEvents", "device_errors"),
        ("nvmlEventSetWait_v2", "device_errors"),
        ("nvmlDeviceGetComputeRunningProcesses_v3", "other_processes"),
    ],
)
def test_what_a_device_cannot_tell_is_null_and_the_rest_is_known(
    function: str, column: str
) -> None:
    columns = Watched(StandInNvml(unsupported=[function], pids=[OWN])).window()
    unknown = {name for name, value in columns.items() if value is None}
    assert unknown - HOST_COLUMNS == {column}
    assert columns["telemetry_flags"] == []


@pytest.mark.parametrize(
    "nvml",
    [MissingNvml(), StandInNvml(mig=1), StandInNvml(unsupported=["nvmlDeviceGetHandleByUUID"])],
)
def test_without_nvml_or_on_a_slice_of_a_gpu_only_the_host_is_known(nvml: Any) -> None:
    assert set(Watched(nvml).window()) == HOST_COLUMNS | {"telemetry_flags"}


def test_the_thread_takes_readings_until_the_window_ends() -> None:
    enough, readings = threading.Event(), list[str]()

    class Counted(StandInNvml):
        def answer(self, function: str, *arguments: Any) -> Any:
            if function == "nvmlDeviceGetPowerUsage":
                readings.append(function)
                if len(readings) == 3:
                    enough.set()
            return super().answer(function, *arguments)

    telemetry = Telemetry(GPU, interval_s=0.001, nvml=Counted())
    with telemetry.sampled():
        assert len(sampling_threads()) == 1
        telemetry.start()
        assert enough.wait(timeout=60)
        telemetry.stop()
        assert sampling_threads() == []


@pytest.mark.parametrize("is_started", [False, True])
def test_a_window_that_fails_before_or_after_its_start_leaves_no_thread(is_started: bool) -> None:
    telemetry = Telemetry(CPU, interval_s=NEVER_S)
    with pytest.raises(ValueError, match="failed"), telemetry.sampled():
        if is_started:
            telemetry.start()
        raise ValueError("failed")
    assert sampling_threads() == []


def test_no_reading_is_taken_before_the_window_begins() -> None:
    # A reading before the first edge would have no time to count from, and end the thread.
    telemetry = Telemetry(CPU, interval_s=1e-6)
    with telemetry.sampled():
        (thread,) = sampling_threads()
        thread.join(timeout=0.05)
        assert thread.is_alive()
        telemetry.start()
        assert telemetry.stop()["host_memory_used_bytes"] > 0


def test_a_window_that_was_never_stopped_leaves_nothing_to_the_next() -> None:
    watched = Watched(StandInNvml(temperature=99))
    watched.telemetry.start()
    watched.read()
    assert watched.window({"temperature": 50})["temperature_celsius"] == 50


def zone(powercap: Path, name: str, *, says: str, energy_uj: int) -> None:
    folder = powercap / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{says}\n")
    (folder / "energy_uj").write_text(f"{energy_uj}\n")
    (folder / "max_energy_range_uj").write_text("10000000\n")


def test_cpu_energy_is_that_of_the_packages_without_what_they_contain(tmp_path: Path) -> None:
    zone(tmp_path, "intel-rapl:0", says="package-0", energy_uj=1_000_000)
    zone(tmp_path, "intel-rapl:0:0", says="core", energy_uj=500_000)
    zone(tmp_path, "intel-rapl:1", says="package-1", energy_uj=9_000_000)
    zone(tmp_path, "intel-rapl:2", says="psys", energy_uj=9_000_000)
    zone(tmp_path, "intel-rapl-mmio:0", says="package-0", energy_uj=1_000_000)
    first = cpu_energy_counters(tmp_path)
    assert first is not None
    assert set(first) == {"intel-rapl:0", "intel-rapl:1"}
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("3000000\n")
    (tmp_path / "intel-rapl:1" / "energy_uj").write_text("500000\n")
    # 2 J, and 1.5 J of a counter that wrapped around at 10 J.
    assert cpu_energy_j(first, cpu_energy_counters(tmp_path)) == pytest.approx(3.5)


def test_cpu_energy_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    assert cpu_energy_counters(tmp_path) is None
    zone(tmp_path, "intel-rapl:0", says="package-0", energy_uj=1)
    (tmp_path / "intel-rapl:0" / "energy_uj").unlink()
    assert cpu_energy_counters(tmp_path) is None
    assert cpu_energy_j(None, None) is None
