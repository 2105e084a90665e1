"""`torchrun --nproc-per-node N -m dtsweep.worker SWEEP.py workers=N`: one point without Ray."""

import sys

from dtsweep.worker.torchrun import main

sys.exit(main(sys.argv[1:]))
