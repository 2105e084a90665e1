"""Sentences of all remarks, by severity and code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Severity = Literal["answer", "next", "warning", "note"]
"""Kinds of remarks: the answer to a question, what to do next, a reason for doubt, and the rest."""

SENTENCES: Mapping[Severity, Mapping[str, str]] = {
    "answer": {
        "no_recommendation": "No recommendation: {reason}.",
        "best": "{name}Take {point}: the best of {candidates:# configuration} for {goal}.",
        "equal": (
            "{name}Take {point}: equal within {zone:limit} to the best of {candidates:# "
            "configuration} for {goal}."
        ),
        "same_value": (
            "{name}Take {point}: one of the best of {candidates:# configuration} for {goal}."
        ),
        "undecided": (
            "{name}Undecided after {launches:# launch}: of {candidates:# configuration}, {point} "
            "leads for {goal}."
        ),
        "single_launch": (
            "{name}Best of one launch each: {point}, of {candidates:# configuration} for {goal}."
        ),
        "only_candidate": "{name}Take {point}: the only candidate for {goal}.",
        "no_answer": (
            "{name}No answer yet: 1 of {asked} planned points has a number, {point}, for {goal}."
        ),
        "on_frontier": (
            "Frontier: {settled} of {points:# point} on it, {open} open; each within "
            "{zone:limit} ({confidence:limit} confidence each)."
        ),
    },
    "next": {
        "longer_windows": "Longer windows (`Measure(half_width=…)`) would help.",
        "quieter": "First use a quieter machine (drift: {drift:up}).",
        "longer_limit": (
            "Allow longer windows first, `Measure({setting}=…)` ({imprecise} of {trials:# trial} "
            "are imprecise)."
        ),
        "more_launches": "About {count:# more launch} of each would be needed.",
        "over_20_launches": "Over 20 more launches of each would be needed.",
        "wider_zone": "A wider indifference zone decides sooner: `--indifference {zone}`.",
        "futile": (
            "A difference of {zone:limit} can't be decided here: launches of a point differ by "
            "{sigma}. It would take {launches} more launches of each. Next: use a quieter machine."
        ),
        "run": "Next: {run}.",
        "frontier_again": (
            "The same command goes on, and `--goal throughput` asks for the best one."
        ),
        "frontier_goes_on": (
            "`--max-launches {max_launches}` goes on, and `--goal throughput` asks for the best "
            "one."
        ),
        "try_next": "Try next: {axes}. Each could save at most that share of the step.",
    },
    "warning": {
        "not_measured": "{count:# point} without a number: {points:list}.",
        "not_begun": "{count:# planned point} not run yet.",
        "answer_above_linear": "Doubtful: its rate is far above linear.",
        "condition_open": "It is open whether it meets the condition.",
        "caution": "Doubtful: {caution}.",
        "limit_open": "It is open at 95 % whether it meets {where}: {figures:all}.",
        "other_updates": (
            "Its updates are {semantics}. Updates that are not exact may need more samples to the "
            "same loss."
        ),
        "answer_drift": (
            "The machine drifted by at most {drift:up}: ignore smaller differences of single "
            "launches."
        ),
        "not_exchanged": (
            "Nothing exchanged: the {workers}-worker runs train a separate model in each "
            "worker{reason}. Start the process group in the script, and wrap the model "
            "(docs/own-loops.md). They are not recommended."
        ),
        "same_samples": (
            "Same samples: each step of {points:list} has fewer samples than are counted{reason}. "
            "Not recommended."
        ),
        "above_linear": (
            "Too fast: {point} has {times:.3g} times the samples/s of workers={base}, far above "
            "{linear:g} times. One of the two is wrong: check both before you use either."
        ),
        "unlike_repeats": (
            "Rows of {point} differ by {factor:.2g} times: are they of the same machine? If not, "
            "give the table a column that tells them apart."
        ),
        "samples_unknown": "samples/s is unknown of {points:list}{reason}.",
        "objectives_unknown": "Not all of these were measured of {count:# point}: on no frontier.",
        "where_unknown": "It is not known of {count:# point} whether {where}: neither in nor out.",
        "drift": (
            "The machine drifted: the same point took up to {drift:up} longer at one time than at "
            "another, in sessions with {concerned} of {trials:# trial}. Differences below "
            "{drift:up} may be drift."
        ),
        "drift_unknown": (
            "A drift of the machine below {drift:up} is not excluded: its canaries are too "
            "imprecise."
        ),
        "canaries_failed": (
            "Canary: {failed} of {ran} did not end ok, so less is known of whether the machine "
            "drifted.{reasons:lines}"
        ),
        "started_once": "Noise: every point was started once; {run} measures it.",
        "noise_assumed": (
            "Differences below {limit:share} may be noise: two starts may differ by that much, if "
            "one varies by an assumed {sigma:share}."
        ),
        "implausible": "Implausible: numbers of {count:# trial} can't all be true.{trials:lines}",
        "not_used": (
            "Not used: {count:# imported row} with numbers that can't all be true.{rows:lines}"
        ),
        "joined": (
            "{count:# imported row} count as measured in env_id {env_id}, by --with-imported: "
            "whether they are of such a machine is not known."
        ),
        "environments": (
            "Measured in {count} environments (env_id): never compared with each other. Columns "
            "machine and threads of the table of ranks say what differs.{differences:lines}"
        ),
        "interference": (
            "Trials that ran at the same time, up to {concurrent}, took {share:share1} longer "
            "than alone, more than the indifference zone of {zone:share1}. Run fewer: "
            "Resources(concurrent={advised})."
        ),
        "gradients_other": (
            "Gradient of the first step against one worker's: up to {most:.1g} apart in {count:# "
            "trial} of {name}, so another gradient."
        ),
        "canaries_drifted": (
            "Drift above {limit:share} in {sessions:# session} with {trials:# trial}: {names:list}."
        ),
    },
    "note": {
        "others_failed": "The report says why the others have no number.",
        "others_unknown": "No other point is known to be a candidate.",
        "no_other": "No other point is a candidate.",
        "others_lower": "Every other one has a lower value.",
        "others_higher": "Every other one has a higher value.",
        "better": "It is better than every other one ({confidence:limit} confidence).",
        "better_assumed": (
            "It is better than every other one, if launches of one point differ by an assumed "
            "{sigma:limit}."
        ),
        "better_by": (
            "It is at least {least} better than every other one ({confidence:limit} confidence)."
        ),
        "others_equal": (
            "{count:# other configuration} with the same value. It has the highest samples_per_s "
            "of these."
        ),
        "others_at_most": (
            "No other one is more than {most} better ({confidence:limit} confidence)."
        ),
        "none_better": "No other one is better ({confidence:limit} confidence).",
        "equal_points": "Equal to it: {points:list}. It has the {why} of these.",
        "cheaper_open": "Open: {points:list} with fewer workers may be equal, too.",
        "may_be_better": "{point} may be up to {gain} better{condition}.",
        "may_be_better_loud": (
            "{point} may be better: its launches differ too much to say by how much{condition}."
        ),
        "others_may_be_better": "{points:names} may be better, too.",
        "launches_limit": "Launches limit the answer: longer windows would not help.",
        "windows_limit": (
            "Windows of {window_s:.2g} s are known to {within:limit}, which limits the answer; "
            "launches differ by {between:limit}."
        ),
        "one_launch_best": (
            "One launch of each: it is better than every other one, if launches of one point "
            "differ by an assumed {sigma:limit}."
        ),
        "one_launch_open": (
            "One launch of each decides nothing: {count:# other configuration} may be as good, if "
            "launches of one point differ by an assumed {sigma:limit}."
        ),
        "figures": "It has {figures:all}.",
        "meets": "It meets {where}: {figures:all}.",
        "at_limit": "It meets {where}, within {zone:limit} of the limit: {figures:all}.",
        "limit_assumed": (
            "That is of one launch, if launches of one point differ by an assumed {sigma:limit}."
        ),
        "also_open": "Also open: {points:list}.",
        "runner_up": (
            "Runner-up: {point} (the recommended one has {ratio:.4g} times its "
            "{objective}{interval})."
        ),
        "runner_up_pooled": (
            "The comparison is more precise than ± above: it pools the launches of all points, "
            "and what a launch does to all its points cancels."
        ),
        "left_out_unknown": "Left out: {count:# point} of which {columns:or} is not known{way}.",
        "left_out_slow": (
            "Left out: {count:# point} with less than {share:share} of the best samples_per_s."
        ),
        "left_out_implausible": "Left out: {count:# point} whose numbers can't be trusted.",
        "alternative": "Alternative with {advantage}: {point} has {figures:and}{why_not}.",
        "answer_drift_unknown": (
            "The drift of the machine is not known, and single launches have it. Canaries "
            "(`Measure(canary=True)`) would show it."
        ),
        "answer_drift_imported": "The drift of the machine is not known, and single rows have it.",
        "answer_drift_tested": (
            "The machine drifted by at most {drift:up}: the spread of launches contains it."
        ),
        "objectives": "Frontiers are of {objectives:all}; the plot shows step time and throughput.",
        "only_where": (
            "Only points where {where}: {count:# point} left out; trials are counted of all."
        ),
        "noise": (
            "Noise{where}: samples/s of one point differ by {sigma:share1} between launches "
            "(standard deviation, {low:share1} to {high:share1}). To show a difference of "
            "2 %, each point needs {launches[0]} launches; of 5 %, {launches[1]}; of 10 %, "
            "{launches[2]}."
        ),
        "windows": (
            "Each trial was timed for {steps:span} steps ({seconds:span} s). ± is half of a 95 % "
            "interval."
        ),
        "limit": "{point}: {reason}.",
        "bounds": "Points on frontiers by what limits them: {counts:counts}.",
        "knee_found": (
            "{group}: the step from {size:# worker} to {next_size} doesn't pay{interval}."
        ),
        "knee_beyond_sizes": (
            "{group}: each step pays, up to the largest size measured ({largest})."
        ),
        "knee_not_distinguishable": (
            "{group}: undecided: launches don't show whether a step beyond {pays_at_least:# "
            "worker} pays."
        ),
        "knee_unknown": "{group}: unknown: {reason}.",
        "knees_unknown": "{count:# group} of several sizes: unknown: {reason}.",
        "law": (
            "Universal Scalability Law: {facts:all}; misses the measured by {residual:share1}."
        ),
        "law_contradicted": (
            "Universal Scalability Law: {facts:all}; misses the measured by {residual:share1}, "
            "more than launches differ."
        ),
        "few_sizes": "The Universal Scalability Law is fitted to four sizes or more.",
        "many_groups": (
            "Not asked of {count:,} groups; dtsweep.analysis.worthwhile and usl answer for each."
        ),
        "models": (
            "{count} models (by workload and model_digest), each on frontiers and ladders of its "
            "own: {models:all}."
        ),
        "models_compared": (
            "{count} models (by workload and model_digest), compared with each other, as one "
            "product: {models:all}."
        ),
        "interval": (
            "± is half of the 95 % interval over launches; ends in brackets are not symmetric."
        ),
        "interval_within": (
            "Intervals of {count} of {points:# point} are within one launch; {run} would show how "
            "far launches differ."
        ),
        "interval_pooled": (
            "{count:# point} with one launch: widened by the spread between launches of the others."
        ),
        "interval_unknown": "No interval of {count:# point}: too few steps, or they drift.",
        "frontier_probability": (
            "frontier %: how often a point is on the frontier when all means are resampled within "
            "their errors (parametric bootstrap over launches)."
        ),
        "no_exchange_share": "Trials without a share of exchange + wait: {reasons:counts}.",
        "compression_error": (
            "error %: one compressed exchange against the mean of the values themselves."
        ),
        "window_ends": "Trials by the end of their window: {ends:counts}.",
        "gradients_equal": (
            "Gradient of the first step against one worker's: equal but for rounding in {count:# "
            "trial} (at most {most:.1g})."
        ),
        "gradients_near": (
            "Gradient of the first step against one worker's: up to {most:.1g} apart in {count:# "
            "trial} of {name}, as of another GPU or a compiled bf16 model."
        ),
        "gradients_lossy": (
            "Gradient of the first step against one worker's: up to {most:.1g} apart in {count:# "
            "trial} of {name}, which the compression changes in one exchange, and not wrong by "
            "that."
        ),
        "short_for_energy": (
            "energy_j is null on {count:# trial} with a window under {seconds:g} s; "
            "Measure(energy=True) makes windows long enough."
        ),
        "canaries": (
            "Canaries, which repeat one point, ran in {sessions:# session} of {worlds:# world}; "
            "largest drift within a session: {drift}."
        ),
        "canaries_imprecise": (
            "Canaries are too imprecise to exclude a drift of {limit:share} in {sessions:# "
            "session} with {trials:# trial}: {names:list}."
        ),
        "flags": "Trials by flag: {counts:counts}.{meanings:lines}",
    },
}
"""A template of each code, which its numbers fill."""
