"""Environment variables that change what libraries do, not those that name a rank, run or place."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from dtsweep.secret import hidden

_FAMILIES = (
    # What exchanges.
    "NCCL_",
    "RCCL_",
    "GLOO_",
    "UCC_",
    "UCX_",
    "FI_",
    "IBV_",
    "MLX5_",
    "RDMAV_",
    "SHARP_",
    # torch and what it compiles with.
    *(
        "TORCH_",
        "PYTORCH_",
        "ATEN_",
        "TORCHINDUCTOR_",
        "INDUCTOR_",
        "AOT_INDUCTOR_",
        "AOTINDUCTOR_",
        "TORCHDYNAMO_",
    ),
    "FUNCTORCH_",
    "TRITON_",
    "CUTE_DSL_",
    "FLASH_ATTENTION_",
    "XFORMERS_",
    "NVTE_",
    # Devices and their maths.
    "CUDA_",
    "CUBLAS_",
    "CUBLASLT_",
    "CUDNN_",
    "CUFFT_",
    "CUSOLVER_",
    "CUTLASS_",
    "CUPTI_",
    *(
        "HIP_",
        "HSA_",
        "AMD_",
        "ROCBLAS_",
        "ROCSOLVER_",
        "ROCFFT_",
        "HIPBLAS_",
        "HIPBLASLT_",
        "TENSILE_",
        "MIOPEN_",
    ),
    # Processors, threads and memory.
    *(
        "OMP_",
        "GOMP_",
        "KMP_",
        "MKL_",
        "MKLDNN_",
        "DNNL_",
        "ONEDNN_",
        "OPENBLAS_",
        "GOTO_",
        "BLIS_",
        "ARM_COMPUTE_",
    ),
    "MALLOC_",
    "TCMALLOC_",
    "MIMALLOC_",
)
"""Variables with these beginnings change what libraries do."""

_SINGLE = frozenset(
    {
        "DISABLE_ADDMM_CUDA_LT",
        "GLIBC_TUNABLES",
        "GPU_MAX_HW_QUEUES",
        "LD_BIND_NOW",
        "LD_PRELOAD",
        "LRU_CACHE_CAPACITY",
        "NVIDIA_TF32_OVERRIDE",
        "PYTHON_GIL",
        "PYTHON_JIT",
        "PYTHONMALLOC",
        "PYTHONOPTIMIZE",
    }
)
"""Variables that do so and are of no family.

Others that begin like them say what a container may see.
"""

NCCL_SETTINGS: Mapping[str, str] = {
    # By default NCCL's watchdog ends the process when a kernel of the workload has failed, before
    # the process can say where.
    "TORCH_NCCL_RETHROW_CUDA_ERRORS": "0",
}
"""Variables that processes with NCCL have, unless a sweep or a user sets them."""

NO_GPUS: Mapping[str, str] = {"CUDA_VISIBLE_DEVICES": ""}
"""Variables of processes whose ranks compute on the CPU of a machine with GPUs.

Ray shows them all GPUs, and a call that asks torch's accelerator makes a context on the first.
"""

_NOT_OF_THE_MACHINE = frozenset(
    {
        "NCCL_COMM_ID",
        "NCCL_HOSTID",
        "NCCL_RAS_ADDR",
        # Launchers and libraries set these, each to its own value; `threads` is a fact of its own.
        "KMP_DUPLICATE_LIB_OK",
        "KMP_INIT_AT_FORK",
        "NCCL_ASYNC_ERROR_HANDLING",
        "OMP_NUM_THREADS",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        *NCCL_SETTINGS,
        "TORCH_WARM_POOL",
        # Where files lie, which differs from user to user and does not make a step slower.
        "CUDA_PATH",
        "NCCL_DEBUG_FILE",
        "TORCH_EXTENSIONS_DIR",
        "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
        "TORCH_NCCL_DEBUG_INFO_TEMP_FILE",
        "TORCH_TRACE",
        "TORCHINDUCTOR_CK_DIR",
        "TORCHINDUCTOR_CUTLASS_DIR",
        "TRITON_LIBCUDA_PATH",
        "TRITON_LIBDEVICE_PATH",
        "TRITON_PTXAS_PATH",
    }
)
"""Variables of those families that tell a rank, a run or a user from another."""

_PLACES = (
    "_CACHE_DIR",
    "_CACHE_PATH",
    "_DB_PATH",
    "_DUMP_DIR",
    "_HOME",
    "_LOG_DIRECTORY",
    "_OUTPUT_DIR",
)
_LOGS = (
    "_LOGGING_FILE",
    "_LOG_FILE",
    "_LOG_LEVEL",
    "_LOG_MASK",
    "_LOG_PATH",
    "_LOGPATH",
    "_LOGS",
    "_LOGS_OUT",
)
_ENDINGS = (
    *_PLACES,
    *_LOGS,
    "_PIPE_DIRECTORY",
    "_REDIS_HOST",
    "_REDIS_PORT",
    "_REDIS_URL",
    "_VISIBLE_DEVICES",
)
"""Endings of variables of those families that set paths, log levels or device numbers."""


_READ_LATE = _FAMILIES[: _FAMILIES.index("TORCH_")]
"""Variables with these beginnings are read when a process group is made."""


def read_at_start(variables: Mapping[str, str]) -> list[str]:
    """Names of those variables that libraries read when they are loaded, or may do.

    >>> read_at_start({"OMP_DYNAMIC": "true", "NCCL_ALGO": "Ring", "MY_DATA": "/data"})
    ['OMP_DYNAMIC']
    """
    return [
        name
        for name in variables
        if name in _SINGLE or (name.startswith(_FAMILIES) and not name.startswith(_READ_LATE))
    ]


def set_defaults(variables: Mapping[str, str]) -> None:
    """Set variables of this process that it does not have."""
    for name, value in variables.items():
        os.environ.setdefault(name, value)


def ambient(
    environment: Mapping[str, str], *, own_variables: Collection[str] = ()
) -> dict[str, str]:
    """Pick the variables of the machine that change what libraries do.

    Args:
        environment: of a process.
        own_variables: names of the variables that the sweep sets, for a point or for all of them.

    >>> environment = {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN", "CUDA_VISIBLE_DEVICES": "3"}
    >>> ambient(environment, own_variables=["NCCL_ALGO"])
    {'NCCL_DEBUG': 'WARN'}
    """
    left_out = _NOT_OF_THE_MACHINE.union(own_variables)
    variables = {
        name: value
        for name, value in sorted(environment.items())
        if (name in _SINGLE or (name.startswith(_FAMILIES) and not name.endswith(_ENDINGS)))
        and name not in left_out
    }
    if "LD_PRELOAD" in variables:
        # Which libraries, and not where somebody has put them.
        variables["LD_PRELOAD"] = " ".join(
            Path(library).name for library in variables["LD_PRELOAD"].replace(":", " ").split()
        )
    return hidden(variables)


@contextmanager
def variables_set(variables: Mapping[str, str | None]) -> Iterator[None]:
    """Change environment variables of this process for a while; child processes inherit them.

    Args:
        variables: by name; None unsets one.
    """
    before = {name: os.environ.get(name) for name in variables}
    _put(variables)
    try:
        yield
    finally:
        _put(before)


def _put(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
