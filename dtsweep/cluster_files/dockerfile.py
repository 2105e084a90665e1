"""The image of a cluster's nodes."""

from __future__ import annotations

import shlex

from dtsweep.cluster_files.describe import PROJECT, Described

BUILT = ("pyproject.toml", "README.md", "LICENSE", "dtsweep")
"""Files that dtsweep is built from."""


def image_name(described: Described) -> str:
    """Name of the image, without a registry."""
    packages = described.packages
    return described.image(f"dtsweep:{packages.dtsweep}-ray{packages.ray}")


def dockerfile_text(described: Described) -> str:
    """Text of a Dockerfile.

    Raises:
        SweepError: a file of the sweep is not in the working directory.
    """
    packages = described.packages
    image = image_name(described)
    context = ""
    if packages.source is not None:
        context = f"--build-context dtsweep={shlex.quote(str(packages.source))} "
    lines = [
        f"# Nodes that run {described.files.sweep.name}. In the folder where this was written:",
        f"#   docker build {context}-t {image} -f Dockerfile .",
        "# Then push it to a registry that the nodes can reach.",
        f"FROM {packages.base_image}-{_platform(described)}",
        *_of_dtsweep(described),
    ]
    if not described.files.is_single:
        lines += ["", "# The sweep file and what it imports: build again when they change."]
        lines += [_copy(path) for path in described.files.in_project()]
    return "\n".join([*lines, ""])


def _platform(described: Described) -> str:
    return "gpu" if described.has_gpus else "cpu"


def _of_dtsweep(described: Described) -> list[str]:
    packages = described.packages
    pins = [*packages.pins]
    lines = ["", "# The versions where this was written; a run refuses others."]
    if packages.source is None:
        pins.append(f"dtsweep=={packages.dtsweep}")
    listed = " \\\n    ".join(f'"{pin}"' for pin in pins)
    lines.append(f"RUN pip install --no-cache-dir \\\n    {listed}")
    if packages.source is not None:
        for name in BUILT:
            target = f"/tmp/dtsweep/{name}"  # noqa: S108  # of an image, while it is built
            lines.append(f"COPY --from=dtsweep --chown=ray {name} {target}")
        lines.append("RUN pip install --no-cache-dir --no-deps /tmp/dtsweep")
    return lines


def _copy(path: str) -> str:
    source = f'"{path}"' if " " in path else path
    target = f'"{PROJECT}/{path}"' if " " in path else f"{PROJECT}/{path}"
    if " " in path:
        return f"COPY --chown=ray [{source}, {target}]"
    return f"COPY --chown=ray {source} {target}"
