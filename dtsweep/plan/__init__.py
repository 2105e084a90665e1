"""Plan of a run, from a sweep and its results: trials done, trials to run, and their order.

Any process; no Ray. In reading order:

    prices          prices of nodes, from a file or one for all
    trial           a trial of a plan, which trials may share a session, canaries of a session
    allotment       nodes of a session that runs next to others
    estimate        how long a run is expected to take
    pruning         which trials would run out of device memory
    race            how long a training to a target may take that can still be the best
    policy          policies: what to measure next, as a function of the rows so far
    settle          rounds of launches until a sweep's question is decided
    rate_search     the highest rate of requests that meets a condition, by bisection
    search_pool     points of a search as arrays: settings, chance and cost of a trial
    search_worth    worth of points for the question: expected gain, chance to beat the answer
    search_policy   few points by expected gain, then rounds of the contenders
    plan            what is done, what is to do, in which order; choice of the policy
    needed_nodes    nodes that a sweep can use at once
    batches         plan after plan of a run, as its policy asks for more; one plan, for Python
"""
