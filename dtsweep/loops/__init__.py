"""Training loops of users, measured from inside their optimizer steps.

Each worker process; imports torch and never Ray. In reading order:

    optimizer_steps  ends of optimizer steps of any training loop
    loader_watch    batches that such a loop takes: their time and samples
    script_guard    copy on write for what a script's folder links to
    script_folder   the working directory of a script
    script          a script of the user, run as the main program
    no_steps        how a loop is ended, also one without steps that can be seen
    own_parts       timed steps of a loop that goes on by itself
    own_facts       its model, wrapper and precision, read off its objects
    own_checks      meaning of its updates, by those of all ranks
    own_exchange    its steps without the exchange
    own_after       the stages that follow its window
    own_loop        a training loop of the user, measured from inside its steps
    own_trial       a trial of such a loop
"""
