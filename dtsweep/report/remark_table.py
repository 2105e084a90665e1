"""Sentences of all remarks, by severity and code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

Severity = Literal["answer", "next", "warning", "note"]
"""Kinds of remarks: the answer to a question, what to do next, a reason for doubt, and the rest."""

SENTENCES: Mapping[Severity, Mapping[str, str]] = {
    "answer": {
        "no_recommendation": "No recommendation: {reason}.",
        "best": "{name}Take {point}: the best of {candidates}{goal}.",
        "equal": "{name}Take {point}: equal within {zone:limit} to the best of {candidates}{goal}.",
        "same_value": "{name}Take {point}: one of the best of {candidates}{goal}.",
        "undecided": "{name}For now take {point}: undecided which of {candidates} is best{goal}.",
        "single_launch": (
            "{name}For now take {point}: best of {candidates}{goal}, each launched once."
        ),
        "only_candidate": "{name}Take {point}: no other point fits{goal}.",
        "no_answer": (
            "{name}No answer yet: 1 of {asked} planned points has a number, {point}{goal}."
        ),
        "lead": "It is {by} the next{next}{plain}.",
        "rivals": "{rivals} may be better{plain}.",
        "others_equal": "{count:# other} with the same value; it has the highest samples_per_s.",
        "others_lower": "Every other one has a lower value.",
        "others_higher": "Every other one has a higher value.",
        "better": "{confidence:limit} sure{assumed}: it is better than {others}{least}.",
        "better_assumed": (
            "Likely the best: it leads by more than launches of a point differ "
            "({sigma:limit}, assumed)."
        ),
        "none_better": "{confidence:limit} sure{assumed}: no other one is better{why}.",
        "others_at_most": (
            "{confidence:limit} sure{assumed}: no other one is more than {most} better{why}."
        ),
        "loses_at_most": (
            "{confidence:limit} sure{assumed}: the best is at most {most} better, after "
            "{launches:# launch}."
        ),
        "loss_unknown": "How much better the best may be is not known{reason}.",
        "one_launch_open": (
            "Not sure: {count:# other} may be as good, if launches differ by {sigma:limit} "
            "(assumed)."
        ),
        "others_failed": "There is nothing to compare it with: the others have no number.",
        "no_other": "It was compared with nothing: it is the only point that fits.",
        "limit": "Limited by {bound}{share}.",
        "limit_of_part": "Largest part: {part}; what limits that is not known.",
        "limit_unknown": "What limits it is not known{reason}.",
        "figures": "It has {figures:all}{note}.",
        "on_frontier": (
            "Frontier: {settled} of {points:# point} on it, {open} open; each within "
            "{zone:limit} ({confidence:limit} confidence each)."
        ),
    },
    "next": {
        "run": "Next: {run}{time}.",
        "longer_windows": "Next: {run}, with longer windows: `Measure({setting}=…)`.",
        "futile": "Next: {way}; {why}.",
        "frontier_again": (
            "The same command goes on, and `--goal throughput` asks for the best one."
        ),
        "frontier_goes_on": (
            "`--max-launches {max_launches}` goes on, and `--goal throughput` asks for the best "
            "one."
        ),
    },
    "warning": {
        "not_measured": "{count:# point} without a number: {points:list}.",
        "not_begun": "{count:# planned point} not run yet.",
        "limit_open": "It is open whether it meets {where}.",
        "at_limit": "It meets {where} within {zone:limit} of the limit.",
        "also_open": "Open whether they meet it, too: {points:list}.",
        "cheaper_open": "Fewer workers may be equal, too: {points:list}.",
        "quieter": "The machine was busy: when it is quiet, the answer needs fewer launches.",
        "other_updates": (
            "Its updates are {semantics}. Updates that are not exact may need more samples to the "
            "same loss."
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
        "samples_unknown": "samples/s is unknown of {points:list}{reason}.",
        "objectives_unknown": "Not all of these were measured of {count:# point}: on no frontier.",
        "where_unknown": "It is not known of {count:# point} whether {where}: neither in nor out.",
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
        "canaries_drifted": (
            "Drift above {limit:share} in {sessions:# session} with {trials:# trial}: {names:list}."
        ),
    },
    "note": {
        "left_out_unknown": "Left out: {count:# point} of which {columns:or} is not known{way}.",
        "left_out_implausible": "Left out: {count:# point} whose numbers can't be trusted.",
        "alternative": "Alternative with {advantage}: {point} has {figures:and}{why_not}.",
        "objectives": "Frontiers are of {objectives:all}; the plot shows step time and throughput.",
        "only_where": (
            "Only points where {where}: {count:# point} left out, whose trials are counted above."
        ),
        "noise": (
            "Noise{where}: samples/s of one point differ by {sigma:share1} between launches "
            "(standard deviation)."
        ),
        "switches": (
            "Launches of {count:# point} ran on nodes of one switch and of several: part of their "
            "noise. `sbatch --switches=1` asks for one."
        ),
        "bounds": "Points on frontiers by what limits them: {counts:counts}.",
        "knee_found": (
            "{group}: the step from {size:# worker} to {next_size} doesn't pay{interval}."
        ),
        "knee_beyond_sizes": (
            "{group}: each step pays, up to the largest size measured ({largest})."
        ),
        "knee_not_distinguishable": (
            "{group}: launches don't show whether a step beyond {pays_at_least:# worker} pays."
        ),
        "knees_not_distinguishable": (
            "{count:# group}: launches don't show from where on one more worker doesn't pay: "
            "{groups:list}."
        ),
        "knees_unknown": "{count:# group} of several sizes: unknown: {reason}.",
        "many_groups": "Not asked of {count:,} groups: dtsweep.analysis.worthwhile answers each.",
        "models": (
            "{count} models (by workload and model_digest), each on frontiers and ladders of its "
            "own: {models:all}."
        ),
        "interval": (
            "± is half of the 95 % interval over launches; ends in brackets are not symmetric."
        ),
        "interval_within": (
            "Intervals of {count} of {points:# point} are within one launch; {run} would show how "
            "far launches differ."
        ),
        "interval_unknown": "No interval of {count:# point}: too few steps, or they drift.",
        "no_exchange_share": "Trials without a share of exchange + wait: {reasons:counts}.",
        "compression_error": (
            "error %: one compressed exchange against the mean of the values themselves."
        ),
        "window_ends": "Trials by the end of their window: {ends:counts}.",
        "canaries": (
            "Canaries, which repeat one point, ran in {sessions:# session} of {worlds:# world}; "
            "largest drift within a session: {drift}."
        ),
        "flags": "Trials by flag: {counts:counts}.{meanings:lines}",
    },
}
"""A template of each code, which its numbers fill."""
