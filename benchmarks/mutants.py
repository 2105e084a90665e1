"""Break places of the code at random, one at a time, and see how many the tests find.

    python -m benchmarks.mutants --seed 60 --places 30

Each place is one operator, constant or branch of `dtsweep/`. Each is broken in a clone of its
own, where the tests of its room run first. Those that these do not find are broken together for
one run of all tests: what fails there names them. That a test fails for another reason shows in
the run of the sound code, with `--places 0`.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

ROOT = Path(__file__).parents[1]

ROOMS = [
    "analysis",
    "compare",
    "compression",
    "doctor",
    "hardware",
    "inference",
    "loops",
    "measure",
    "metrics",
    "plan",
    "predict",
    "provenance",
    "report",
    "results",
    "session",
    "sweep",
    "sync",
    "worker",
]
"""Rooms whose tests start no Ray, but for a few."""

OTHERS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
"""What stands for an operator when it is broken."""


class Place(NamedTuple):
    """Where the code is broken, and how."""

    file: str
    line: int
    start: int
    end: int
    """Offsets in the file's bytes."""
    old: str
    new: str

    @property
    def room(self) -> str:
        """Folder of `dtsweep/` and of `tests/`."""
        return Path(self.file).parts[1]


def broken(node: ast.AST) -> ast.AST | None:
    """A copy of the node that does something else, or None where there is nothing to break."""
    other = copy.deepcopy(node)
    match other:
        case ast.Compare(ops=[operator]) if type(operator) in OTHERS:
            other.ops = [OTHERS[type(operator)]()]  # type: ignore[list-item]
        case ast.BinOp(op=operator) | ast.BoolOp(op=operator) if type(operator) in OTHERS:
            other.op = OTHERS[type(operator)]()  # type: ignore[assignment]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            other = operand
        case ast.Constant(value=bool(value)):
            other.value = not value
        case ast.Constant(value=int(value) | float(value)):
            other.value = value + 1
        case ast.IfExp(body=body, orelse=orelse):
            other.body, other.orelse = orelse, body
        case _:
            return None
    return other


def nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The node and what it holds, but for annotations and texts with values in them."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list"} or isinstance(node, ast.JoinedStr):
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, ast.AST):
                yield from nodes(each)


def places(root: Path) -> list[Place]:
    """All places of the rooms."""
    found = []
    for room in ROOMS:
        for path in sorted((root / "dtsweep" / room).rglob("*.py")):
            text = path.read_bytes()
            starts = [0]
            for line in text.splitlines(keepends=True):
                starts.append(starts[-1] + len(line))
            for node in nodes(ast.parse(text)):
                other = broken(node)
                if other is None:
                    continue
                start = starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
                end = starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]
                found.append(
                    Place(
                        file=str(path.relative_to(root)),
                        line=node.lineno,  # type: ignore[attr-defined]
                        start=start,
                        end=end,
                        old=text[start:end].decode(),
                        new=f"({ast.unparse(other)})",
                    )
                )
    return found


def break_at(root: Path, chosen: Sequence[Place]) -> None:
    """Break a clone at places that lie outside each other."""
    for place in sorted(chosen, key=lambda place: -place.start):
        path = root / place.file
        text = path.read_bytes()
        path.write_bytes(text[: place.start] + place.new.encode() + text[place.end :])


def failures(root: Path, *arguments: str) -> str | None:
    """Run pytest in a clone: what failed, None where nothing did; "timeout" where it hangs."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
            cwd=root,
            env={**os.environ, "PYTHONPATH": str(root)},
            capture_output=True,
            text=True,
            timeout=7200,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "timeout"
    if done.returncode == 0:
        return None
    lines = done.stdout.splitlines()
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return "\n".join(failed) or done.stdout[-500:] + done.stderr[-500:]


def clone_of(code: str, tests: str, root: Path) -> None:
    """Clone the code of one commit with the tests of another one."""
    for command in (
        ["clone", "--quiet", "--shared", "--no-checkout", str(ROOT), str(root)],
        ["-C", str(root), "checkout", "--quiet", code],
        ["-C", str(root), "rm", "--quiet", "-r", "tests"],
        ["-C", str(root), "checkout", "--quiet", tests, "--", "tests", "pyproject.toml"],
    ):
        subprocess.run(["git", *command], check=True)


def tested(asked: argparse.Namespace, chosen: Sequence[Place], *arguments: str) -> str | None:
    """Break a new clone at these places: the first failed tests, or None."""
    with TemporaryDirectory() as folder:
        root = Path(folder) / "clone"
        clone_of(asked.code, asked.tests, root)
        break_at(root, chosen)
        return failures(root, "-m", asked.marks, *arguments)


def main() -> None:
    """Print each place with the test that finds it, and those that no test finds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--places", type=int, default=20)
    parser.add_argument("--marks", default="not ray and not gpu and not slow")
    parser.add_argument("--code", default="HEAD", help="commit whose code is broken")
    parser.add_argument("--tests", default="HEAD", help="commit whose tests are run")
    asked = parser.parse_args()
    with TemporaryDirectory() as folder:
        root = Path(folder) / "clone"
        clone_of(asked.code, asked.tests, root)
        chosen = random.Random(asked.seed).sample(places(root), asked.places)
    missed = []
    for place in chosen:
        failed = tested(asked, [place], "-x", f"tests/{place.room}")
        print(f"{place.file}:{place.line}: {place.old!r} -> {place.new!r}: {failed}", flush=True)
        if failed is None:
            missed.append(place)
    print(f"{len(missed)} of {len(chosen)} are missed by the tests of their rooms; by all tests:")
    print(tested(asked, missed, "-n", "2", "--dist", "loadfile"))


if __name__ == "__main__":
    main()
