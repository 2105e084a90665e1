from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pynvml
import pytest
import torch

from dtsweep.hardware.device import compute_capability
from dtsweep.hardware.fingerprint import cpu, fingerprint, host
from dtsweep.hardware.nvml import driver, find_gpu, topology
from dtsweep.hardware.variables import ambient
from tests.stand_in_nvml import GPU, UUID, MissingNvml, StandInNvml, torch_sees_a_gpu

__all__ = ["torch_sees_a_gpu"]

CPU = torch.device("cpu")
SYSTEM, NET = "sys/devices/system", "sys/class/net"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def machine(device: torch.device = CPU, **arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = fingerprint(device, **arguments)["machine"]
    return found


def test_a_machine_is_described_alike_by_two_processes_and_in_plain_json() -> None:
    code = (
        "import json, torch; from dtsweep.hardware.fingerprint import fingerprint; "
        "print(json.dumps(fingerprint(torch.device('cpu'))))"
    )
    launcher = {"RANK": "1", "MASTER_PORT": "1234", "NCCL_RAS_ADDR": "localhost:999"}
    environment = os.environ | launcher | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    other = json.loads(done.stdout)
    assert other["machine"] == json.loads(json.dumps(machine()))
    assert other["pid"] != os.getpid()


def test_a_machine_names_nothing_that_passes_and_nothing_that_is_unknown() -> None:
    # Nor is a GPU's library asked for a CPU.
    found = fingerprint(CPU, nvml=None)
    text = json.dumps(found["machine"])
    assert found["node"] not in text.split('"')
    assert str(os.getpid()) not in text.replace(".", '"').split('"')
    assert all(value not in (None, "", [], {}) for value in found["machine"].values())
    known = ("cpu", "cpus", "cpus_allowed", "system", "memory_gib", "blas", "torch_commit")
    assert set(known) <= set(found["machine"])
    assert "driver" not in found["machine"]
    # No other name looks like a column.
    assert {name for name in found["machine"] if name.endswith("_version")} <= {
        f"{package}_version" for package in ("dtsweep", "torch", "ray", "python", "numpy")
    }


def test_variables_that_the_sweep_sets_are_no_part_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    own = ["NCCL_ALGO"]
    environment = machine(own_variables=own)["environment"]
    assert environment == ambient(os.environ, own_variables=own)
    assert machine()["environment"].keys() - environment.keys() == {"NCCL_ALGO"}


def test_sockets_cores_and_threads_are_told_apart(tmp_path: Path) -> None:
    # Two sockets of two cores of two threads.
    logical = [(socket, core) for _ in range(2) for socket in range(2) for core in range(2)]
    cpuinfo = "\n".join(
        f"processor\t: {i}\nmodel name\t: A CPU @ 2.0 GHz: fast\n"
        f"physical id\t: {socket}\ncore id\t\t: {core}\n"
        for i, (socket, core) in enumerate(logical)
    )
    files = {
        "proc/cpuinfo": cpuinfo,
        f"{SYSTEM}/cpu/smt/active": "1\n",
        f"{SYSTEM}/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
        f"{SYSTEM}/node/node0/cpulist": "",
        f"{SYSTEM}/node/node1/cpulist": "",
    }
    found = cpu(write(tmp_path, files))
    assert found["cpu"] == "A CPU @ 2.0 GHz: fast"
    assert (found["sockets"], found["cores"], found["smt"]) == (2, 4, True)
    assert (found["governor"], found["numa_nodes"]) == ("performance", 2)


def test_what_a_kernel_does_not_say_is_unknown(tmp_path: Path) -> None:
    found = {**cpu(tmp_path), **host(tmp_path)}
    unknown = ("sockets", "cores", "smt", "governor", "numa_nodes", "clock_source", "memory_gib")
    assert [found[name] for name in unknown] == [None] * len(unknown)
    assert found["network"] == []


@pytest.mark.parametrize(
    ("files", "name", "value"),
    [
        (
            # Virtual interfaces do not count.
            {
                f"{NET}/eth1/device/vendor": "",
                f"{NET}/eth1/speed": "25000\n",
                f"{NET}/eth0/device/vendor": "",
                f"{NET}/eth0/speed": "-1\n",
                f"{NET}/veth12ab/speed": "10000\n",
                "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
            },
            "network",
            ["eth0", "eth1 25000 Mb/s", "mlx5_0 400 Gb/sec (4X NDR)"],
        ),
        # Equal machines have some mebibytes less.
        ({"proc/meminfo": "MemTotal: 527900000 kB\n"}, "memory_gib", 503),
        ({"proc/meminfo": "MemTotal: 527890000 kB\n"}, "memory_gib", 503),
        ({".dockerenv": ""}, "container", "docker"),
        ({"run/.containerenv": ""}, "container", "podman"),
        ({"proc/self/cgroup": "0::/kubepods.slice/a"}, "container", "kubepods"),
        ({"proc/self/cgroup": "0::/user.slice"}, "container", None),
    ],
)
def test_files_of_the_kernel_tell_networks_memory_and_containers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], name: str, value: object
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert host(write(tmp_path, files))[name] == value


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_a_gpu_is_described_without_what_tells_it_from_its_equals() -> None:
    found = fingerprint(GPU, nvml=StandInNvml(devices=3))
    assert (found["device"], found["device_uuid"]) == ("A GPU", "0b1c")
    assert "0b1c" not in json.dumps(found["machine"])
    described = {
        "driver": "570.1",
        "cudnn": 91000,
        "nccl": "2.27.3",
        "gpu": {
            "ecc": True,
            "mig": False,
            "persistence": True,
            "power_limit_w": 700.0,
            "power_limit_default_w": 650.0,
            "compute_mode": "exclusive_process",
            "pcie_generation": 5,
            "pcie_width": 16,
            "nvlinks": 18,
            "sm_boost_clock_hz": 1.98e9,
            "sm_application_clock_hz": 1.5e9,
            "memory_application_clock_hz": 1.5e9,
        },
        "topology": [["node p2p nvlink", "node p2p nvlink"], ["node p2p nvlink"]],
        "compute_capability": "8.0",
    }
    assert {name: found["machine"][name] for name in described} == described
    # Links that are down make another machine.
    assert machine(GPU, nvml=StandInNvml(nvlinks=(1, 0, 1)))["gpu"]["nvlinks"] == 2


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_a_gpu_of_amd_has_no_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert compute_capability(GPU) is None
    assert "compute_capability" not in machine(GPU, nvml=MissingNvml())
    assert compute_capability(CPU) is None


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_what_nvml_cannot_tell_of_a_gpu_is_left_out() -> None:
    unsupported = """
        ApplicationsClock ComputeMode EccMode MaxCustomerBoostClock MaxPcieLinkGeneration
        MaxPcieLinkWidth NvLinkState PowerManagementDefaultLimit
    """
    silent = StandInNvml(unsupported=[f"nvmlDeviceGet{name}" for name in unsupported.split()])
    assert set(machine(GPU, nvml=silent)["gpu"]) == {"mig", "persistence", "power_limit_w"}
    assert not {"driver", "gpu", "topology"} & set(machine(GPU, nvml=MissingNvml()))


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_what_changes_from_moment_to_moment_makes_no_other_machine() -> None:
    busy = StandInNvml(pcie=(5, 16), clock_mhz=1900, temperature=80, pids=[7], limits=0x4)
    idle = StandInNvml(pcie=(1, 8), clock_mhz=300, temperature=30, other_limit_mw=500_000)
    assert machine(GPU, nvml=busy) == machine(GPU, nvml=idle)


@pytest.mark.usefixtures("torch_sees_a_gpu")
@pytest.mark.parametrize(
    ("pids", "mps_pids", "has_mps"),
    [([9], [], True), ([], [os.getpid()], True), ([8], [7], False)],
)
def test_a_machine_says_that_mps_serves_the_gpu(
    pids: list[int], mps_pids: list[int], has_mps: bool
) -> None:
    names = {9: "/usr/bin/nvidia-cuda-mps-server"}
    nvml = StandInNvml(pids=pids, mps_pids=mps_pids, names=names)
    assert machine(GPU, nvml=nvml).get("mps", False) is has_mps


def test_every_function_that_is_asked_for_is_one_of_the_library() -> None:
    asked = {"nvmlDeviceGetName"}

    class Recorded(StandInNvml):
        def answer(self, function: str, *arguments: Any) -> Any:
            asked.add(function)
            return super().answer(function, *arguments)

    nvml = Recorded(devices=2, pids=[7])
    gpu = find_gpu(UUID, nvml=nvml)
    assert gpu is not None
    gpu.read(), gpu.energy_j(), gpu.other_processes({1}), gpu.settings()
    gpu.power_limit_w(), gpu.has_mps()
    driver(nvml=nvml), topology(nvml=nvml)
    assert len(asked) > 15
    assert [name for name in sorted(asked) if not callable(getattr(pynvml, name, None))] == []


def test_one_gpu_has_no_topology_and_an_unknown_way_is_named_so() -> None:
    assert topology(nvml=StandInNvml(devices=1)) is None
    unknown = ("nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus")
    assert topology(nvml=StandInNvml(devices=2, unsupported=unknown)) == [["unknown"]]
