"""What a script that runs its own sweep says of its class: the class, what that uses, and what may change any of it."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from dtsweep.provenance.effects import DEFINITION, FUNCTION, STAR, Script, defined
from dtsweep.provenance.syntax import is_for_a_script, is_for_type_checkers

COMPOUND = (ast.If, ast.For, ast.While, ast.With, ast.Try, ast.TryStar, ast.Match)


def reached(tree: ast.Module, name: str) -> dict[str, list[ast.stmt]]:
    """What a script defines as `name`, what that uses, what may change any of it, and so on.

    A statement at the top counts with all that is in it where it defines a name that is used, assigns to something of
    it, calls a method of it, hands it to a function, or names a function of the script that does so. An `if`, `for` or
    `with` is one statement. What is handed to a sweep does not count, nor what comes after the last one has run.
    In doubt a statement counts: at worst, points are measured again.

    Returns:
        Statements by the names that they define or may change; empty where the script defines none of that name.
    """
    script = Script.of(tree)
    touching = list(_touching(tree.body, script, name))
    # What a star brings may be anything that is used.
    waiting = [*sorted(brought for _, names in touching for brought in names if brought.endswith(STAR)), name]
    found: dict[str, list[ast.stmt]] = {}
    while waiting:
        wanted = waiting.pop()
        parts = [statement for statement, names in touching if wanted in names]
        if parts and wanted not in found:
            found[wanted] = parts
            waiting += [node.id for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)]
    return found if name in found else {}


def _touching(body: Iterable[ast.stmt], script: Script, name: str) -> Iterator[tuple[ast.stmt, set[str]]]:
    """Statements with the names that they define or may change; those of a function that runs a sweep likewise."""
    studies = script.callers({"dtsweep.Sweep", "dtsweep.run"})
    for statement in _until_last_run(list(_without_guards(body)), script, name):
        is_study = not script.names(statement).isdisjoint(studies)
        for one in [statement, *(statement.body if is_study and isinstance(statement, FUNCTION) else [])]:
            # What is handed to a sweep is not changed by it.
            is_simple = not isinstance(one, (*DEFINITION, *COMPOUND))
            is_sweep = is_simple and not script.names(one).isdisjoint(studies)
            yield one, defined(one) if is_sweep else script.touched(one)


def _until_last_run(body: list[ast.stmt], script: Script, name: str) -> list[ast.stmt]:
    """All up to the last statement that may run a sweep; what does needs the class or a sweep."""
    runs, end = script.callers({"dtsweep.run"}), 0
    needed = {name, *script.callers({"dtsweep.Sweep", "dtsweep.run"})}
    for number, statement in enumerate(body, start=1):
        names = script.names(statement)
        if names & needed:
            is_definition = isinstance(statement, DEFINITION)
            end = end if is_definition else number
            # What a run gives back is no sweep.
            needed |= defined(statement) if is_definition or not names & runs else set()
    return body[:end] if any(script.names(one) & runs for one in body) else body


def _without_guards(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        if isinstance(statement, ast.If) and is_for_a_script(statement):
            yield from _without_guards(statement.body)
        elif not is_for_type_checkers(statement):
            yield statement
