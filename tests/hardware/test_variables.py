"""Which environment variables are part of a machine."""

from __future__ import annotations

import pytest

from dtsweep.hardware.variables import ambient

OF_THE_MACHINE = """
    NVIDIA_TF32_OVERRIDE CUBLASLT_WORKSPACE_SIZE CUDA_LAUNCH_BLOCKING CUDNN_ERRATA_JSON_FILE
    TORCHINDUCTOR_MAX_AUTOTUNE TORCHDYNAMO_DISABLE TRITON_INTERPRET ATEN_CPU_CAPABILITY
    GOMP_CPU_AFFINITY OMP_PROC_BIND DNNL_MAX_CPU_ISA ONEDNN_DEFAULT_FPMATH_MODE MKL_CBWR
    OPENBLAS_NUM_THREADS BLIS_NUM_THREADS MALLOC_ARENA_MAX LD_PRELOAD GLIBC_TUNABLES FI_PROVIDER
    UCX_TLS NCCL_TOPO_FILE TORCH_NCCL_ENABLE_MONITORING NVTE_FLASH_ATTN HIPBLASLT_ALLOW_TF32
    ROCBLAS_USE_HIPBLASLT MIOPEN_FIND_MODE HSA_ENABLE_SDMA HIP_FORCE_DEV_KERNARG
    PYTORCH_ALLOC_CONF PYTHONMALLOC
"""

OF_A_RANK_A_RUN_OR_A_USER = {
    "torchrun": """
        RANK LOCAL_RANK GROUP_RANK ROLE_RANK ROLE_NAME WORLD_SIZE LOCAL_WORLD_SIZE GROUP_WORLD_SIZE
        ROLE_WORLD_SIZE MASTER_ADDR MASTER_PORT TORCHELASTIC_RESTART_COUNT OMP_NUM_THREADS
        TORCHELASTIC_MAX_RESTARTS TORCHELASTIC_RUN_ID TORCHELASTIC_USE_AGENT_STORE
        TORCHELASTIC_ERROR_FILE TORCH_NCCL_ASYNC_ERROR_HANDLING
    """,
    "Ray": """
        RAY_ADDRESS RAY_JOB_ID RAY_RAYLET_PID RAY_CLIENT_MODE CUDA_VISIBLE_DEVICES OMP_NUM_THREADS
        HIP_VISIBLE_DEVICES ROCR_VISIBLE_DEVICES NCCL_RAS_ADDR NCCL_ASYNC_ERROR_HANDLING
        TUNE_ORIG_WORKING_DIR PYTHONBREAKPOINT PYTHONUNBUFFERED SPT_NOENV
    """,
    "torch and the tests": """
        KMP_DUPLICATE_LIB_OK KMP_INIT_AT_FORK TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR
        TORCH_WARM_POOL DISABLE_CUPTI_LAZY_REINIT TEARDOWN_CUPTI PYTEST_CURRENT_TEST
        TRITON_PTXAS_PATH
    """,
    "containers and users": """
        NVIDIA_VISIBLE_DEVICES NVIDIA_DRIVER_CAPABILITIES NVIDIA_REQUIRE_CUDA TORCH_HOME CUDA_HOME
        TORCH_LOGS TRITON_HOME MIOPEN_USER_DB_PATH MIOPEN_CUSTOM_CACHE_DIR HIPBLASLT_LOG_LEVEL
        CUDA_MPS_PIPE_DIRECTORY CUDA_CACHE_PATH NCCL_DEBUG_FILE PYTHONPATH HOME
    """,
}


def test_what_changes_the_maths_the_exchange_or_the_memory_is_part_of_the_machine() -> None:
    machine = dict.fromkeys(OF_THE_MACHINE.split(), "1")
    assert ambient(machine | {"PATH": "/bin"}) == machine
    assert ambient(machine, own_variables=[*machine]) == {}


@pytest.mark.parametrize("who", OF_A_RANK_A_RUN_OR_A_USER)
def test_what_tells_a_rank_a_run_or_a_user_from_another_is_no_part_of_the_machine(who: str) -> None:
    assert ambient(dict.fromkeys(OF_A_RANK_A_RUN_OR_A_USER[who].split(), "1")) == {}


def test_a_library_that_is_loaded_first_counts_wherever_it_lies() -> None:
    one, other = (
        ambient({"LD_PRELOAD": f"{place}/libjemalloc.so.2:/lib/b.so"})
        for place in ("/usr/lib", "/home/me")
    )
    assert one == other == {"LD_PRELOAD": "libjemalloc.so.2 b.so"}
