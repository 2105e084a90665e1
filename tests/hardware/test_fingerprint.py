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


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def machine(**arguments: Any) -> dict[str, Any]:
    found: dict[str, Any] = fingerprint(CPU, **arguments)["machine"]
    return found


def test_a_machine_is_described_alike_by_two_processes_and_in_plain_json() -> None:
    code = (
        "import json, torch; from dtsweep.hardware.fingerprint import fingerprint; "
        "print(json.dumps(fingerprint(torch.device('cpu'))))"
    )
    launcher = {
        "RANK": "1",
        "MASTER_PORT": "1234",
        "NCCL_RAS_ADDR": "localhost:999",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | launcher,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    other = json.loads(done.stdout)
    assert other["machine"] == json.loads(json.dumps(machine()))
    assert other["pid"] != os.getpid()


def test_a_machine_names_nothing_that_passes_and_nothing_that_is_unknown() -> None:
    found = fingerprint(CPU)
    text = json.dumps(found["machine"])
    assert found["node"] not in text.split('"')
    assert str(os.getpid()) not in text.replace(".", '"').split('"')
    assert all(value not in (None, "", [], {}) for value in found["machine"].values())
    assert {"cpu", "cpus", "cpus_allowed", "system", "memory_gib", "blas", "torch_commit"} <= set(
        found["machine"]
    )


def test_no_name_but_those_of_versions_looks_like_a_column() -> None:
    names = {name for name in machine() if name.endswith("_version")}
    assert names <= {
        "dtsweep_version",
        "torch_version",
        "ray_version",
        "python_version",
        "numpy_version",
    }


def test_a_cpu_asks_no_gpu_library() -> None:
    assert "driver" not in machine(nvml=None)


def test_variables_that_the_sweep_sets_are_no_part_of_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    monkeypatch.setenv("NCCL_IB_HCA", "mlx5_0")
    assert machine(own_variables=["NCCL_ALGO"])["environment"] == ambient(
        os.environ, own_variables=["NCCL_ALGO"]
    )
    assert "NCCL_ALGO" in machine()["environment"]
    assert "NCCL_ALGO" not in machine(own_variables=["NCCL_ALGO"])["environment"]


def test_sockets_cores_and_threads_are_told_apart(tmp_path: Path) -> None:
    # Two sockets of two cores of two threads.
    logical = [(socket, core) for _ in range(2) for socket in range(2) for core in range(2)]
    cpuinfo = "\n".join(
        f"processor\t: {i}\nmodel name\t: A CPU @ 2.0 GHz: fast\n"
        f"physical id\t: {socket}\ncore id\t\t: {core}\n"
        for i, (socket, core) in enumerate(logical)
    )
    system = "sys/devices/system"
    root = write(
        tmp_path,
        {
            "proc/cpuinfo": cpuinfo,
            f"{system}/cpu/smt/active": "1\n",
            f"{system}/cpu/cpu0/cpufreq/scaling_governor": "performance\n",
            f"{system}/node/node0/cpulist": "",
            f"{system}/node/node1/cpulist": "",
        },
    )
    found = cpu(root)
    assert found["cpu"] == "A CPU @ 2.0 GHz: fast"
    assert (found["sockets"], found["cores"], found["smt"]) == (2, 4, True)
    assert (found["governor"], found["numa_nodes"]) == ("performance", 2)


def test_what_a_kernel_does_not_say_is_unknown(tmp_path: Path) -> None:
    found = {**cpu(tmp_path), **host(tmp_path)}
    unknown = ("sockets", "cores", "smt", "governor", "numa_nodes", "clock_source", "memory_gib")
    assert [found[name] for name in unknown] == [None] * len(unknown)
    assert found["network"] == []


def test_network_devices_have_their_speeds_and_virtual_interfaces_do_not_count(
    tmp_path: Path,
) -> None:
    net = "sys/class/net"
    root = write(
        tmp_path,
        {
            f"{net}/eth1/device/vendor": "",
            f"{net}/eth1/speed": "25000\n",
            f"{net}/eth0/device/vendor": "",
            f"{net}/eth0/speed": "-1\n",
            f"{net}/veth12ab/speed": "10000\n",
            "sys/class/infiniband/mlx5_0/ports/1/rate": "400 Gb/sec (4X NDR)\n",
        },
    )
    assert host(root)["network"] == ["eth0", "eth1 25000 Mb/s", "mlx5_0 400 Gb/sec (4X NDR)"]


def test_machines_with_some_mebibytes_less_are_equal(tmp_path: Path) -> None:
    machines = [
        write(tmp_path / str(kb), {"proc/meminfo": f"MemTotal: {kb} kB\n"})
        for kb in (527_900_000, 527_890_000)
    ]
    assert [host(root)["memory_gib"] for root in machines] == [503, 503]


@pytest.mark.parametrize(
    ("file", "text", "kind"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("proc/self/cgroup", "0::/kubepods.slice/a", "kubepods"),
        ("proc/self/cgroup", "0::/user.slice", None),
    ],
)
def test_a_container_is_known_by_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, text: str, kind: str | None
) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert host(write(tmp_path, {file: text}))["container"] == kind


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_a_gpu_is_described_without_what_tells_it_from_its_equals() -> None:
    found = fingerprint(GPU, nvml=StandInNvml(devices=3))
    assert (found["device"], found["device_uuid"]) == ("A GPU", "0b1c")
    assert "0b1c" not in json.dumps(found["machine"])
    described = {
        name: found["machine"][name]
        for name in ("driver", "cudnn", "nccl", "gpu", "topology", "compute_capability")
    }
    assert described == {
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


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_a_gpu_of_amd_has_no_compute_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "hip", "6.4")
    assert compute_capability(GPU) is None
    assert "compute_capability" not in fingerprint(GPU, nvml=MissingNvml())["machine"]
    assert compute_capability(CPU) is None


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_what_nvml_cannot_tell_of_a_gpu_is_left_out() -> None:
    some = fingerprint(
        GPU,
        nvml=StandInNvml(
            unsupported=[
                "nvmlDeviceGetApplicationsClock",
                "nvmlDeviceGetComputeMode",
                "nvmlDeviceGetEccMode",
                "nvmlDeviceGetMaxCustomerBoostClock",
                "nvmlDeviceGetMaxPcieLinkGeneration",
                "nvmlDeviceGetMaxPcieLinkWidth",
                "nvmlDeviceGetNvLinkState",
                "nvmlDeviceGetPowerManagementDefaultLimit",
            ]
        ),
    )
    assert set(some["machine"]["gpu"]) == {"mig", "persistence", "power_limit_w"}
    assert not {"driver", "gpu", "topology"} & set(fingerprint(GPU, nvml=MissingNvml())["machine"])


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_what_changes_from_moment_to_moment_makes_no_other_machine() -> None:
    busy = StandInNvml(pcie=(5, 16), clock_mhz=1900, temperature=80, pids=[7], limits=0x4)
    idle = StandInNvml(pcie=(1, 8), clock_mhz=300, temperature=30, other_limit_mw=500_000)
    machines = [fingerprint(GPU, nvml=nvml)["machine"] for nvml in (busy, idle)]
    assert machines[0] == machines[1]


@pytest.mark.usefixtures("torch_sees_a_gpu")
def test_links_that_are_down_make_another_machine() -> None:
    machine = fingerprint(GPU, nvml=StandInNvml(nvlinks=(1, 0, 1)))["machine"]
    assert machine["gpu"]["nvlinks"] == 2


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
    machine = fingerprint(GPU, nvml=nvml)["machine"]
    assert machine.get("mps", False) is has_mps


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
    assert [
        function for function in sorted(asked) if not callable(getattr(pynvml, function, None))
    ] == []


def test_one_gpu_has_no_topology_and_an_unknown_way_is_named_so() -> None:
    assert topology(nvml=StandInNvml(devices=1)) is None
    blind = StandInNvml(
        devices=2, unsupported=["nvmlDeviceGetTopologyCommonAncestor", "nvmlDeviceGetP2PStatus"]
    )
    assert topology(nvml=blind) == [["unknown"]]
