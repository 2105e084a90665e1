"""`python -m dtsweep`."""

from dtsweep.cli import main

main()
