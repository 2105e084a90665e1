from dtsweep.contract import check_compression, check_mode


def test_delayed_keeps_its_promises() -> None:
    check_mode("delayed")


def test_fp8_keeps_its_promises() -> None:
    check_compression("fp8")
