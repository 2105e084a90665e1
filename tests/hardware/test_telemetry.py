from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dtsweep.hardware.host import cores_in_use, cpu_energy_counters, cpu_energy_j
from dtsweep.hardware.nvml import Gpu
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.results.schema import RANKS
from dtsweep.results.statuses import FLAG_MEANINGS
from tests.stand_in_nvml import GPU, MissingNvml, StandInNvml, torch_sees_a_gpu

__all__ = ["torch_sees_a_gpu"]

CPU = torch.device("cpu")
HOST_COLUMNS = {
    "process_cpus",
    "host_cpu_share",
    "host_memory_used_bytes",
    "network_sent_bytes",
    "network_received_bytes",
    "cpu_energy_j",
}
NEVER_S = 1e6


class Watch:
    """A clock that the test turns."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def __call__(self) -> float:
        return self.seconds


def watched(nvml: Any, **arguments: Any) -> tuple[Telemetry, Watch]:
    """Telemetry that takes a reading when the test says so, on a clock that the test turns."""
    watch = Watch()
    return Telemetry(GPU, interval_s=NEVER_S, nvml=nvml, now=watch, **arguments), watch


def window(nvml: StandInNvml, *, seconds: float = 2.0, **arguments: Any) -> dict[str, Any]:
    """A window with one reading at its end."""
    telemetry, watch = watched(nvml, **arguments)
    telemetry.start()
    watch.seconds += seconds
    return telemetry.stop()


def sampling_threads() -> int:
    return sum(thread.name == "dtsweep-telemetry" for thread in threading.enumerate())


def test_a_cpu_has_the_columns_of_its_host_alone_and_needs_no_reading() -> None:
    telemetry = Telemetry(CPU, interval_s=NEVER_S, nvml=None)
    telemetry.start()
    columns = telemetry.stop()
    assert set(columns) == HOST_COLUMNS | {"telemetry_flags"}
    assert columns["telemetry_flags"] == []
    assert columns["process_cpus"] > 0
    assert columns["host_cpu_share"] is None or 0 <= columns["host_cpu_share"] <= 1
    assert (
        0
        < columns["host_memory_used_bytes"]
        < os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    )


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_every_column_is_one_of_ranks_and_every_flag_is_declared() -> None:
    columns = window(StandInNvml(limits=0x20, pids=[os.getpid(), 1]))
    flags = columns.pop("telemetry_flags")
    assert set(columns) <= {column.name for column in RANKS}
    assert flags == ["shared_gpu", "throttled", "window_short"]
    assert set(flags) <= set(FLAG_MEANINGS)


def test_a_process_that_works_all_the_time_keeps_one_cpu_busy() -> None:
    watch = Watch()
    telemetry = Telemetry(CPU, interval_s=NEVER_S, now=watch)
    telemetry.start()
    began = time.process_time()
    while time.process_time() < began + 0.1:
        sum(range(1000))
    watch.seconds += 0.1
    assert 1 <= telemetry.stop()["process_cpus"] < 1.5


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_clocks_are_means_and_memory_and_temperature_the_highest() -> None:
    nvml = StandInNvml(clock_mhz=1000, memory_bytes=5, temperature=70, utilization=80)
    telemetry, watch = watched(nvml)
    telemetry.start()
    watch.seconds += 1
    telemetry.read()
    nvml.clock_mhz, nvml.memory_bytes, nvml.temperature, nvml.utilization = 1600, 4, 65, 100
    watch.seconds += 1
    telemetry.read()
    columns = telemetry.stop()
    assert columns["sm_clock_hz"] == 1.3e9
    assert columns["device_memory_used_bytes"] == 5
    assert columns["temperature_celsius"] == 70
    assert columns["device_utilization"] == 0.9
    assert columns["telemetry_flags"] == ["window_short"]


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_energy_is_the_counters_difference_and_power_follows_from_it() -> None:
    nvml = StandInNvml(energy_mj=1000, power_mw=1)
    telemetry, watch = watched(nvml)
    telemetry.start()
    watch.seconds += 10
    nvml.energy_mj += 5_000_000
    columns = telemetry.stop()
    assert columns["energy_j"] == pytest.approx(5000)
    assert columns["power_w"] == pytest.approx(500)
    assert columns["telemetry_flags"] == []


@pytest.mark.usefixtures("torch_sees_a_gpu")
@pytest.mark.parametrize(("seconds", "is_short"), [(4.9, True), (5.0, False)])
def test_a_window_under_five_seconds_has_no_energy_and_says_so(
    seconds: float, is_short: bool
) -> None:
    columns = window(StandInNvml(power_mw=250_000), seconds=seconds)
    assert (columns["energy_j"] is None) == is_short
    assert ("window_short" in columns["telemetry_flags"]) == is_short
    # Without the counter, power is what was read.
    assert columns["power_w"] == (250 if is_short else 0)


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_a_reading_that_looks_back_before_the_window_tells_neither_utilization_nor_power() -> None:
    columns = window(StandInNvml(), seconds=0.9)
    assert columns["device_utilization"] is None
    assert columns["power_w"] is None
    assert columns["sm_clock_hz"] == 1.9e9


@pytest.mark.usefixtures("torch_sees_a_gpu")
@pytest.mark.parametrize(
    ("limits", "reasons", "is_throttled"),
    [
        (0x0, [], False),
        (0x1, [], False),
        (0x2, ["ApplicationsClocksSetting"], False),
        (0x1 | 0x4, ["SwPowerCap"], False),
        (0x10 | 0x100, ["DisplayClockSetting", "SyncBoost"], False),
        (0x2 | 0x40, ["ApplicationsClocksSetting", "HwThermalSlowdown"], True),
        (0x4 | 0x20, ["SwPowerCap", "SwThermalSlowdown"], True),
        (0x8, ["HwSlowdown"], True),
        (0x80, ["HwPowerBrakeSlowdown"], True),
    ],
)
def test_heat_and_hardware_throttle_but_a_power_cap_and_chosen_clocks_do_not(
    limits: int, reasons: list[str], is_throttled: bool
) -> None:
    columns = window(StandInNvml(limits=limits))
    assert columns["throttle_reasons"] == reasons
    assert ("throttled" in columns["telemetry_flags"]) == is_throttled


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_reasons_of_all_readings_are_named_once() -> None:
    nvml = StandInNvml()
    telemetry, watch = watched(nvml)
    telemetry.start()
    for limits in (0x4, 0x4, 0x4 | 0x40, 0x1):
        nvml.limits = limits
        watch.seconds += 1
        telemetry.read()
    columns = telemetry.stop()
    assert columns["throttle_reasons"] == ["HwThermalSlowdown", "SwPowerCap"]


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_the_power_limit_is_that_at_the_windows_end() -> None:
    nvml = StandInNvml()
    telemetry, watch = watched(nvml)
    telemetry.start()
    watch.seconds += 2
    nvml.other_limit_mw = 350_000
    assert telemetry.stop()["power_limit_w"] == 350


@pytest.mark.usefixtures("torch_sees_a_gpu")
@pytest.mark.parametrize(
    ("pids", "own_pids", "others"),
    [
        ([os.getpid()], None, 0),
        ([os.getpid(), 7], None, 1),
        ([os.getpid(), 7], {os.getpid(), 7}, 0),
        # In a container: all processes hidden, or ours under the host's numbers.
        ([], None, None),
        ([70_001], None, 0),
        ([70_001, 70_002], {os.getpid(), 7}, 0),
        ([70_001, 70_002], None, 1),
    ],
)
def test_only_processes_that_are_not_ours_share_the_device(
    pids: list[int], own_pids: set[int] | None, others: int | None
) -> None:
    columns = window(StandInNvml(pids=pids), own_pids=own_pids)
    assert columns["other_processes"] == others
    assert ("shared_gpu" in columns["telemetry_flags"]) == bool(others)


@pytest.mark.usefixtures("torch_sees_a_gpu")
@pytest.mark.parametrize(
    ("pids", "mps_pids", "others"),
    [
        # The server alone, of which NVML shows no program.
        ([9], [], None),
        ([9], [os.getpid()], 0),
        ([9], [os.getpid(), 7], 1),
        ([os.getpid(), 8, 9], [], 1),
    ],
)
def test_the_server_of_mps_is_no_other_process_but_its_other_programs_are(
    pids: list[int], mps_pids: list[int], others: int | None
) -> None:
    names = {9: "/usr/bin/nvidia-cuda-mps-server", 8: "/usr/bin/python3"}
    columns = window(StandInNvml(pids=pids, mps_pids=mps_pids, names=names))
    assert columns["other_processes"] == others
    assert ("shared_gpu" in columns["telemetry_flags"]) == bool(others)


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_errors_of_the_device_count_in_the_window_in_which_they_came() -> None:
    nvml = StandInNvml(errors=[(0x8, 31)])
    telemetry, watch = watched(nvml)
    windows = []
    for errors in ([(0x1, 0), (0x8, 63)], [(0x2, 0)], []):
        telemetry.start()
        watch.seconds += 10
        nvml.errors = errors
        windows.append(telemetry.stop())
    told = [(columns["device_errors"], columns["telemetry_flags"]) for columns in windows]
    assert told == [
        (
            ["ECC single-bit", "Xid 63"],
            ["ecc", "xid"],
        ),
        (["ECC double-bit"], ["ecc"]),
        ([], []),
    ]


def test_limits_of_clocks_have_another_name_in_old_drivers() -> None:
    limits = [
        Gpu("handle", StandInNvml(limits=0x4, has_old_driver=is_old)).read().limits
        for is_old in (False, True)
    ]
    assert limits == [0x4, 0x4]


def test_a_function_that_another_package_of_that_name_lacks_is_unknown() -> None:
    assert Gpu("handle", SimpleNamespace()).ask("nvmlDeviceGetPowerUsage") is None


def test_a_library_of_another_package_that_has_little_is_read_as_far_as_it_goes() -> None:
    library = SimpleNamespace(
        NVML_CLOCK_SM=1,
        NVML_TEMPERATURE_GPU=0,
        nvmlDeviceGetMemoryInfo=lambda _: SimpleNamespace(used=7),
        nvmlDeviceGetSupportedEventTypes=lambda _: 0x8,
    )
    gpu = Gpu("handle", library)
    assert gpu.read().memory_bytes == 7
    assert gpu.read().power_w is None
    assert gpu.watch_errors() is None


@pytest.mark.usefixtures("torch_sees_a_gpu")
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
    columns = window(StandInNvml(unsupported=[function], pids=[os.getpid()]), seconds=10)
    unknown = {
        name for name, value in columns.items() if value is None and name not in HOST_COLUMNS
    }
    assert unknown == {column}
    assert columns["telemetry_flags"] == []


@pytest.mark.usefixtures("torch_sees_a_gpu")
@pytest.mark.parametrize(
    "nvml",
    [MissingNvml(), StandInNvml(mig=1), StandInNvml(unsupported=["nvmlDeviceGetHandleByUUID"])],
)
def test_without_nvml_or_on_a_slice_of_a_gpu_only_the_host_is_known(nvml: Any) -> None:
    assert set(window(nvml)) == HOST_COLUMNS | {"telemetry_flags"}


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_the_thread_takes_readings_until_the_window_ends() -> None:
    enough = threading.Event()

    class Counted(StandInNvml):
        readings = 0

        def answer(self, function: str, *arguments: Any) -> Any:
            if function == "nvmlDeviceGetPowerUsage":
                self.readings += 1
                if self.readings == 3:
                    enough.set()
            return super().answer(function, *arguments)

    nvml = Counted()
    telemetry = Telemetry(GPU, interval_s=0.001, nvml=nvml)
    with telemetry.sampled():
        assert sampling_threads() == 1
        telemetry.start()
        assert enough.wait(timeout=30)
        telemetry.stop()
        assert sampling_threads() == 0
    assert nvml.readings >= 3


@pytest.mark.parametrize("is_started", [False, True])
def test_a_window_that_fails_before_or_after_its_start_leaves_no_thread(is_started: bool) -> None:
    telemetry = Telemetry(CPU, interval_s=NEVER_S)
    with pytest.raises(ValueError, match="failed"), telemetry.sampled():
        if is_started:
            telemetry.start()
        raise ValueError("failed")
    assert sampling_threads() == 0


def test_no_reading_is_taken_before_the_window_begins() -> None:
    # A reading before the first edge would have no time to count from, and end the thread.
    telemetry = Telemetry(CPU, interval_s=1e-6)
    with telemetry.sampled():
        (thread,) = (
            thread for thread in threading.enumerate() if thread.name == "dtsweep-telemetry"
        )
        thread.join(timeout=0.05)
        assert thread.is_alive()
        telemetry.start()
        assert telemetry.stop()["host_memory_used_bytes"] > 0


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_a_window_that_was_never_stopped_leaves_nothing_to_the_next() -> None:
    nvml = StandInNvml(temperature=99)
    telemetry, watch = watched(nvml)
    telemetry.start()
    telemetry.read()
    nvml.temperature = 50
    telemetry.start()
    watch.seconds += 2
    assert telemetry.stop()["temperature_celsius"] == 50


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


def test_cores_in_use_are_at_most_those_of_the_host() -> None:
    busy, cores = cores_in_use(0.01)
    assert 0 <= busy <= cores
