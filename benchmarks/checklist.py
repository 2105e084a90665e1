"""What the checklists share: lines with expected values, how they are tried, judged and stored.

A line that fails does not end the checklist. After each line all outcomes are written to one JSON
file, which can be put into an issue.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

from dtsweep.errors import error_line

ROOT = Path(__file__).resolve().parent.parent
"""The repository, from which commands run."""

COMMAND_S = 600.0
"""Time limit of one command."""

STOPS_WITHIN_S = 20.0
"""Time that a command has to stop by itself when it is ended."""

SHOWN_CHARACTERS = 300
"""Of a value, at most, on the terminal."""

Found = Mapping[str, Any]
"""Values of a line, by name; None is unknown."""

Verdict = Literal["pass", "differs", "not run"]


class NotRunError(Exception):
    """A line can't be tried here; the message says why."""


@dataclass(frozen=True)
class Expected:
    """An expected value; an unknown one is never as expected."""

    name: str
    words: str
    holds: Callable[[Any], bool]

    def differs(self, found: Found) -> str | None:
        """Say how the value differs, or None.

        >>> within("mfu", 0.2, 0.6).differs({"mfu": 0.75})
        'mfu is 0.75, expected 0.2 to 0.6'
        >>> within("mfu", 0.2, 0.6).differs({})
        'mfu is unknown, expected 0.2 to 0.6'
        """
        value = found.get(self.name)
        if value is None:
            return f"{self.name} is unknown, expected {self.words}"
        if self.holds(value):
            return None
        return f"{self.name} is {shown(value)}, expected {self.words}"


def equal(name: str, value: Any) -> Expected:
    """Expect this very value."""
    return Expected(name, shown(value), lambda found: bool(found == value))


def true(name: str) -> Expected:
    """Expect a truth value that is true."""
    return Expected(name, "True", bool)


def within(name: str, low: float = -math.inf, high: float = math.inf) -> Expected:
    """Expect a number within limits, which count as within."""
    words = f"{low:g} to {high:g}"
    if low == -math.inf:
        words = f"at most {high:g}"
    elif high == math.inf:
        words = f"at least {low:g}"
    return Expected(name, words, lambda found: bool(low <= found <= high))


def having(name: str, part: str) -> Expected:
    """Expect a text or a list that has this part."""
    return Expected(name, f"with {part!r}", lambda found: part in found)


def lacking(name: str, part: str) -> Expected:
    """Expect a text or a list that does not have this part."""
    return Expected(name, f"without {part!r}", lambda found: part not in found)


@dataclass(frozen=True)
class Bench:
    """Where lines are tried, and what earlier lines have found."""

    folder: Path
    """For files of the lines and the output of their commands."""

    address: str = "local"
    """Of Ray; `local` starts a private one, whatever else runs here."""

    found: dict[str, Found] = field(default_factory=dict)
    """What was found, by the name of the line."""

    def of_line(self, line: str) -> Found:
        """Return what an earlier line found.

        Raises:
            NotRunError: it found nothing.
        """
        if self.found.get(line, {}).get("status") != "ok":
            raise NotRunError(f"it needs the row of line {line}")
        return self.found[line]

    def gpus(self) -> int:
        """Number of GPUs that torch can use, as the first line has found it."""
        counts = [found["gpus"] for found in self.found.values() if "gpus" in found]
        return int(next(iter(counts), 0))

    def call(
        self, *command: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in the repository, and add its output to a log.

        Raises:
            TimeoutError: it was ended after `COMMAND_S`, with all processes that it had started.
        """
        began = subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        ended = False
        try:
            out, err = began.communicate(timeout=COMMAND_S)
            ended = True
        except subprocess.TimeoutExpired:
            raise TimeoutError(f"no end after {COMMAND_S:g} s: {' '.join(command)}") from None
        finally:
            if not ended:
                _end(began)
        with (self.folder / "commands.log").open("a", encoding="utf-8") as log:
            log.write(f"$ {' '.join(command)}\n{out}{err}exit code {began.returncode}\n\n")
        return subprocess.CompletedProcess(command, began.returncode, out, err)


def _end(began: subprocess.Popen[str]) -> None:
    """End a command and what it has started; a private Ray is given time to stop."""
    os.killpg(began.pid, signal.SIGTERM)
    try:
        began.communicate(timeout=STOPS_WITHIN_S)
    except subprocess.TimeoutExpired:
        os.killpg(began.pid, signal.SIGKILL)
        began.communicate()


@dataclass(frozen=True, kw_only=True)
class Line:
    """A line of a checklist."""

    name: str
    title: str
    find: Callable[[Bench], Found]
    expected: Sequence[Expected]
    shows: Sequence[str] = ()
    """Names of values that are told, and not judged."""
    needs_gpus: int = 1


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What became of a line."""

    name: str
    title: str
    verdict: Verdict
    expected: Mapping[str, str]
    found: Found
    reason: str | None
    """How it differs, or why it was not run."""
    seconds: float


def judged(line: Line, found: Found, *, seconds: float = 0.0) -> Outcome:
    """Compare what a line has found with what it expects."""
    names = [*(expected.name for expected in line.expected), *line.shows]
    differences = [
        difference
        for expected in line.expected
        if (difference := expected.differs(found)) is not None
    ]
    return _outcome(
        line,
        "differs" if differences else "pass",
        found={name: found.get(name) for name in dict.fromkeys(names)},
        reason="; ".join(differences) or None,
        seconds=seconds,
    )


def _outcome(line: Line, verdict: Verdict, **more: Any) -> Outcome:
    expected = {expected.name: expected.words for expected in line.expected}
    given = {"found": {}, "reason": None, "seconds": 0.0, **more}
    return Outcome(name=line.name, title=line.title, verdict=verdict, expected=expected, **given)


def tried(line: Line, bench: Bench) -> Outcome:
    """Try a line; an error of it counts as a difference."""
    began = time.perf_counter()
    try:
        found = line.find(bench)
    except NotRunError as reason:
        return _outcome(line, "not run", reason=str(reason))
    except Exception as error:  # noqa: BLE001  # the other lines are tried all the same
        seconds = time.perf_counter() - began
        return _outcome(line, "differs", reason=error_line(error), seconds=seconds)
    bench.found[line.name] = found
    return judged(line, found, seconds=time.perf_counter() - began)


def run_lines(
    lines: Sequence[Line], bench: Bench, *, tell: Callable[[str], None], report: Path
) -> int:
    """Try lines one after the other, print each and write all to a file.

    Lines from the first one on that needs more GPUs than torch can use are not run.

    Args:
        lines: of a checklist; the first one finds `gpus` and `facts`.
        bench: where they are tried.
        tell: takes lines for the terminal.
        report: the JSON file.

    Returns:
        The exit code: 0 if every line passed.
    """
    outcomes: list[Outcome] = []
    for index, line in enumerate(lines):
        if line.needs_gpus > bench.gpus():
            reason = _too_few_gpus(line, bench)
            tell(f"line {line.name} needs {reason}; it and the lines after it are not run")
            outcomes += [_outcome(other, "not run", reason=reason) for other in lines[index:]]
            break
        outcomes.append(tried(line, bench))
        tell(printed(outcomes[-1]))
        write_report(report, outcomes, bench)
    write_report(report, outcomes, bench)
    counts: dict[str, int] = dict.fromkeys(("pass", "differs", "not run"), 0)
    for outcome in outcomes:
        counts[outcome.verdict] += 1
    summary = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
    tell(f"{summary}: {report} has all of it, {bench.folder}/commands.log the commands' output")
    if counts["pass"] == len(lines):
        return 0
    return 1


def _too_few_gpus(line: Line, bench: Bench) -> str:
    first = next(iter(bench.found.values()), {})
    has = f"torch sees {bench.gpus()} here"
    if problem := first.get("problem"):
        has = problem
    return f"{'a GPU' if line.needs_gpus == 1 else f'{line.needs_gpus} GPUs'}: {has}"


def write_report(report: Path, outcomes: Sequence[Outcome], bench: Bench) -> None:
    """Write facts of the machine, versions, and all outcomes so far."""
    first = next(iter(bench.found.values()), {})
    content = {"facts": first.get("facts"), "lines": [asdict(outcome) for outcome in outcomes]}
    report.write_text(json.dumps(content, indent=1, default=str) + "\n", "utf-8")


def printed(outcome: Outcome) -> str:
    """Write an outcome for the terminal: verdict, then expected and found of each value."""
    head = f"{outcome.name:>4} {outcome.verdict:<8} {outcome.title} ({outcome.seconds:.0f} s)"
    lines = [head]
    for name, value in outcome.found.items():
        expected = ""
        if name in outcome.expected:
            expected = f", expected {outcome.expected[name]}"
        lines.append(f"       {name}: {shown(value)}{expected}")
    if outcome.reason is not None and not outcome.found:
        lines.append(f"       {outcome.reason[:SHOWN_CHARACTERS]}")
    return "\n".join(lines)


def shown(value: Any) -> str:
    """Write a value in one short line.

    >>> shown(0.123456), shown(None), shown(["a"])
    ('0.1235', 'unknown', "['a']")
    """
    if value is None:
        return "unknown"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value)[:SHOWN_CHARACTERS]


def need(*modules: str) -> None:
    """Have a line not run where a module is not installed.

    Raises:
        NotRunError: it names the missing ones.
    """
    if missing := [module for module in modules if find_spec(module) is None]:
        raise NotRunError(f"it needs {', '.join(missing)}, which {sys.executable} does not have")


def first_line(title: str, *, gpus: int) -> Line:
    """Make the line that all others depend on: the versions, and the GPUs that torch can use."""
    return Line(
        name="1" if gpus == 1 else "13",
        title=title,
        find=_look_around,
        expected=(within("gpus", gpus), having("pynvml", "pynvml.py")),
        shows=("torch", "cuda", "driver", "devices", "problem"),
        needs_gpus=0,
    )


def _look_around(bench: Bench) -> Found:
    return facts_of(bench)


def facts_of(bench: Bench, *arguments: str) -> Found:
    """Return what `benchmarks.gpu_facts` writes.

    Raises:
        RuntimeError: it failed; the message is the last line of what it printed.
    """
    file = bench.folder / "facts.json"
    done = bench.call(*python("benchmarks.gpu_facts", str(file), *arguments))
    if done.returncode:
        raise RuntimeError(last_line(done.stderr))
    return dict(json.loads(file.read_text("utf-8")))


def last_line(text: str) -> str:
    """Return the last line that is not empty; an empty text where there is none."""
    return next(reversed(text.strip().splitlines()), "")


def python(module: str, *arguments: str) -> list[str]:
    """Make the command that runs a module with this Python."""
    return [sys.executable, "-m", module, *arguments]
