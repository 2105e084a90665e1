"""The run: connects, hands out, stores.

The driver's process; imports Ray and Ray Tune. In reading order:

    cluster         which Ray is used, and what fits on it
    scheduler       hands out trials, and tries again where that may help
    tuner           Ray Tune over the scheduler; signals
    recorder        stores what a run brings
    run             plan, connect, drive, store
"""
