"""One live worker group, which is handed trial after trial.

An actor beside the driver, and its ranks; imports Ray Train, and torch in functions alone. In reading order:

    nodes           small tasks on a given node: logs, stacks, signs of life
    worker_loop     the loop in which a session's ranks take tasks
    session         one TorchTrainer run: its ranks, and how it ended
    lane            a session at a time, handed trial after trial
"""
