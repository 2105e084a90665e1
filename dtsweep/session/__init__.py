"""One live worker group, which is handed trial after trial.

An actor next to the driver (`slot`), and the ranks (`worker_loop`), which ask it for tasks; imports
Ray Train, and torch in functions alone but for `attempt`, `in_process` and those of loops. In
reading order:

    logs            the ranks' log files: private, bounded, swept away
    nodes           small Ray tasks on a given node: its logs, stacks, signs of life
    orphans         placement groups that killed trainers leave behind
    rank_assignment  which ranks of a session make a smaller world
    node_choice     which nodes a session is started on
    session_settings  what every session of a run shares, and the code that travels
    deadlines       until when the ranks of an attempt are waited for
    shards          the parameter server's shards on the ranks' nodes
    memory_kills    processes that the kernel has killed for want of memory
    attempt         one attempt at a trial: has it measured, says how it ended
    loop_process    a process for each trial of a training loop, as the rank sees it
    loop_server     the server that forks these processes
    in_process      a world of one rank in this very process
    worker_loop     the loop in which a session's ranks take tasks
    session_trainer  a TorchTrainer that starts fewer processes
    trainer         the TorchTrainer of a session
    hang            the ranks that a hang waits for, by their collectives and stacks
    last_words      what the log of a rank that has ended says of its end
    endings         what Ray says of how a trainer ended
    diagnosis       which rank is dead, stopped or silent, and on which node
    start_errors    why a session does not come up; checks of its ranks at the start
    state           the states of a session, and which may follow which
    session         one TorchTrainer run: its ranks, and smaller worlds of them
    failed_starts   starts that failed, and the results of the attempts that wanted them
    rank_logs       logs of its ranks, read on their nodes
    attempt_on_ranks  one attempt on its ranks: handed out, waited for, its result
    node_watch      nodes that a slot's sessions must not use: failing ones, and those that leave
    request         nodes that are asked of an autoscaler before a session starts
    slot            the actor in which one session lives at a time
"""
