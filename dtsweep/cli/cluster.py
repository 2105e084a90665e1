"""The command `cluster`: files that start a cluster for a sweep."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from dtsweep.cli.measure import read, run
from dtsweep.cli.options import FiniteRange, set_option, sweep_argument, tell
from dtsweep.errors import SweepError, quoted

OWN = {
    "results": "--results",
    "settings": "--set",
    "address": "--address",
    "in_process": "--in-process",
}
"""Options of a run that don't stand after `--`."""


@click.command()
@sweep_argument
@click.argument("arguments", nargs=-1, metavar="[-- OPTIONS OF RUN]")
@click.option(
    "--to", type=click.Choice(["ray", "kuberay"]), required=True, help="Form of the file."
)
@click.option(
    "--dockerfile", is_flag=True, help="Write the Dockerfile of the nodes' image instead."
)
@click.option("-o", "--output", "file", metavar="FILE", help="A new file; else stdout.")
@click.option("--results", metavar="URI", help="Where the run stores results: s3://bucket/folder.")
@set_option
@click.option(
    "--kind",
    type=click.Choice(["RayJob", "RayCluster"]),
    default="RayJob",
    show_default=True,
    help="KubeRay: a job with its cluster, or a cluster alone.",
)
@click.option(
    "--provider", type=click.Choice(["aws", "gcp", "azure"]), help="Cloud; aws if not given."
)
@click.option("--region", metavar="REGION", help="Region of the cloud.")
@click.option("--instance", metavar="TYPE", help="Machines of the workers.")
@click.option(
    "--cpus-per-node", type=click.IntRange(min=1), metavar="N", help="CPUs of a worker's node."
)
@click.option(
    "--gpus-per-node", type=click.IntRange(min=0), metavar="N", help="GPUs of a worker's node."
)
@click.option(
    "--max-nodes",
    type=click.IntRange(min=1),
    metavar="N",
    help="Nodes of workers, at most; by default as many as the sweep can use at once.",
)
@click.option("--image", metavar="IMAGE", help="Image that has all packages.")
@click.option(
    "--idle-minutes",
    type=FiniteRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="M",
    help="Minutes after which idle nodes go.",
)
@click.option("--spot", is_flag=True, help="Workers on spot machines; the head never is.")
@click.option("--queue", metavar="NAME", help="KubeRay: local queue of Kueue.")
def cluster(
    sweep: str,
    arguments: tuple[str, ...],
    dockerfile: bool,
    file: str | None,
    settings: tuple[str, ...],
    **options: Any,
) -> None:
    """Write the file that starts a cluster for a sweep: of ray up, or of KubeRay.

    It fits the sweep: its worlds, placements and slots. What stands after `--` are options of
    `dtsweep run` there. Nothing is started.
    """
    from dtsweep.cluster_files.asked import Asked
    from dtsweep.cluster_files.describe import describe
    from dtsweep.cluster_files.dockerfile import dockerfile_text
    from dtsweep.cluster_files.kuberay import kuberay_text
    from dtsweep.cluster_files.ray_up import ray_up_text

    _check_run(sweep, arguments)
    asked, candidates = read(sweep, settings, {})
    points = [candidate.point for candidate in candidates if candidate.reason is None]
    described = describe(
        asked,
        points,
        Path(sweep),
        Asked(arguments=arguments, settings=settings, **options),
    )
    if dockerfile:
        text = dockerfile_text(described)
    elif options["to"] == "ray":
        text = ray_up_text(described)
    else:
        text = kuberay_text(described, environment=asked.resources.environment)
    for note in described.notes:
        tell(f"dtsweep: {note}")
    if file is None:
        click.echo(text, nl=False)
    else:
        _write(Path(file), text)
        tell(f"wrote {file}")


def _check_run(sweep: str, arguments: tuple[str, ...]) -> None:
    """Refuse what `dtsweep run` on the cluster would refuse, before it costs money.

    Raises:
        SweepError: an option does not exist, has a wrong value, or stands before `--`.
    """
    try:
        with run.make_context("run", [sweep, *arguments]) as context:
            given = context.params
    except click.exceptions.Exit:
        sys.exit(0)
    except click.UsageError as error:
        raise SweepError(
            f"dtsweep run would refuse what stands after --: {error.format_message().rstrip('.')}"
        ) from None
    if given["max_cost_usd"] is not None and given["prices"] is None and given["price"] is None:
        raise SweepError("--max-cost needs the prices of nodes: add --prices FILE, or --price USD")
    for name, option in OWN.items():
        if given[name]:
            raise SweepError(f"{option} can't stand after --; {_instead(option)}")


def _instead(option: str) -> str:
    if option in ("--results", "--set"):
        return "give it in front"
    return "the run uses the cluster's Ray"


def _write(path: Path, text: str) -> None:
    """Write a new file.

    Raises:
        SweepError: there is such a file, or it can't be written.
    """
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise SweepError(f"there is a file {str(path)!r}; give -o another name") from None
    except OSError as error:
        raise SweepError(f"{quoted(str(path))} can't be written: {error.strerror}") from None
