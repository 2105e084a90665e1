"""Write what docs/ takes from the code: columns, tables between marks in pages, `llms.txt`."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any, get_args

from dtsweep import Measure, Point, Resources, Search
from dtsweep.results.schema import SCHEMA_VERSION, TABLES
from dtsweep.results.statuses import FINAL, FLAG_MEANINGS, STATUS_MEANINGS
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.constraints import CONSTRAINTS, Harness
from dtsweep.sweep.evidence import EVIDENCE, tried_on
from dtsweep.sweep.mode_info import SEMANTICS, ModeInfo
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point_axes import AXES, FIELD_TYPES

FOLDER = Path(__file__).parent

DIALECT = "https://json-schema.org/draft/2020-12/schema"

CODES = {"status": STATUS_MEANINGS, "semantics": SEMANTICS}
"""Columns with a closed set of values."""


def columns_page() -> str:
    """Write docs/columns.md."""
    lines = [
        "# Columns",
        "",
        f"Made from `dtsweep/results/schema.py` (schema version {SCHEMA_VERSION}).",
    ]
    lines += ["Null means unknown or not measured; it is never written as 0."]
    for table, columns in TABLES.items():
        lines += [
            "",
            f"## `{table}`",
            "",
            "| column | type | unit | meaning |",
            "|---|---|---|---|",
        ]
        lines += [f"| `{c.name}` | {c.type} | {c.unit} | {c.meaning} |" for c in columns]
    lines += ["", "## `status`", "", "| status | meaning | on resume |", "|---|---|---|"]
    for status, meaning in STATUS_MEANINGS.items():
        lines.append(f"| `{status}` | {meaning} | {'kept' if status in FINAL else 'tried again'} |")
    lines += ["", "## `flags`", "", "| flag | meaning |", "|---|---|"]
    lines += [f"| `{flag}` | {meaning} |" for flag, meaning in FLAG_MEANINGS.items()]
    return "\n".join(lines) + "\n"


def write_pages() -> None:
    """Write the pages as they follow from the code."""
    (FOLDER / "columns.md").write_text(columns_page(), "utf-8")
    (FOLDER / "schemas" / "columns.json").write_text(columns_schema(), "utf-8")
    for page, tables in {
        "sweep-files.md": {
            "axes": axes(),
            "Search": settings(Search),
            "Measure": settings(Measure),
            "Resources": settings(Resources),
        },
        "sync-modes.md": {
            "modes": modes(),
            "compressions": compressions(),
            "carriers": carriers(),
        },
        "measuring.md": {"exchange": exchange()},
        **{page: {"evidence": evidence(names.split())} for page, names in TRIED.items()},
    }.items():
        text = (FOLDER / page).read_text("utf-8")
        for name, table in tables.items():
            text = with_table(text, name, table)
        (FOLDER / page).write_text(text, "utf-8")
    (FOLDER / "llms.txt").write_text(llms_txt(), "utf-8")


TRIED = {
    "model-parallel.md": "tensor_parallel sequence_parallel pipeline_parallel pipeline_schedule",
    "compute.md": "compile fused attention precision=fp16 precision=bf16 precision=tf32",
    "own-loops.md": "script sync=as_written Trainer Lightning Accelerate DeepSpeed Megatron",
    "own-modes.md": "sync=own",
    "time-to-loss.md": "cifar10_target",
    "clusters.md": "autoscaling placement Slurm",
    "doctor.md": "doctor",
}
"""Pages of features, and the names of these in `dtsweep.sweep.evidence`."""


def evidence(features: Iterable[str]) -> str:
    """The table of machines on which features ran, with the log's entry."""
    rows = [(f"`{feature}`", tried_on(feature), _entry(feature)) for feature in features]
    return _table(("feature", "tried on", "log"), rows)


def _entry(feature: str) -> str:
    """Link to the newest entry of the log that shows the largest machine of a feature."""
    days = EVIDENCE[tried_on(feature)].items()
    day = max(day for day, names in days if feature in names.split())
    return f"[{day}](log/{day}.md)"


def llms_txt() -> str:
    """Write llms.txt: the index of docs/ with a section of links for each of its groups."""
    lines = ["# dtsweep", "", f"> {SUMMARY}", ""]
    for line in (FOLDER / "README.md").read_text("utf-8").splitlines():
        if line.startswith("**"):
            group = line.strip("*")
            # Readers of llms.txt may leave out what is optional.
            lines += [f"## {'Optional' if group == 'Maintain' else group}", ""]
        elif line.startswith(("- ", "  ")):
            lines += _links(line)
        elif not line and lines[-1].startswith("- "):
            lines.append("")
    return "\n".join(lines).rstrip() + "\n"


SUMMARY = (
    "dtsweep measures configurations of one distributed PyTorch training job on a Ray cluster or "
    "one machine, and says which to take, with intervals. Scripts and agents read its `--json` "
    "and exit codes."
)


def _links(line: str) -> list[str]:
    """A bullet for each link of a line of the index, with the words that follow the last one."""
    found = re.findall(r"\[([^\]]+)\]\(([^)]+)\)", line)
    words = line.partition("): ")[2]
    return [f"- [{name}]({path}){f': {words}' if words else ''}" for name, path in found]


_JSON_TYPES = {"int64": "integer", "double": "number", "bool": "boolean"}
"""Types of JSON by those of Arrow; other columns are text."""


def columns_schema() -> str:
    """Write docs/schemas/columns.json: the columns of `trials`, and the settings of a point."""
    definitions = {column.name: _column_schema(column) for column in TABLES["trials"]}
    definitions["settings"] = {
        "description": "Settings of a point without workers: its axes, workload and variables.",
        "type": "object",
        "properties": {
            **{name: {"$ref": f"#/$defs/{name}"} for name in _SETTINGS},
            "environment": {"$ref": "#/$defs/environment"},
        },
        "patternProperties": {"^workload_": True},
        "required": [*_SETTINGS],
    }
    lines = [
        f"    {json.dumps(name)}: {json.dumps(schema, ensure_ascii=False)}"
        for name, schema in definitions.items()
    ]
    head = {"$schema": DIALECT, "$comment": "made by docs/tables.py"}
    head["title"] = "Columns of the rows that dtsweep prints; null is unknown or not measured"
    start = json.dumps(head, indent=2)[: -len("\n}")]
    return f'{start},\n  "$defs": {{\n{_joined(lines)}\n  }}\n}}\n'


def _joined(lines: Iterable[str]) -> str:
    return ",\n".join(lines)


_SETTINGS = [name for name in AXES if name != "workers"]


def _column_schema(column: Any) -> dict[str, Any]:
    """The schema of a stored column as it is printed: null is unknown."""
    unit = f" Unit: {column.unit}." if column.unit else ""
    kind = str(column.type)
    schema: dict[str, Any] = {"description": f"{column.meaning}.{unit}"}
    item = _JSON_TYPES.get(kind.removeprefix("list<item: ").removesuffix(">"), "string")
    if column.name == "environment":
        return schema | {"type": ["object", "null"], "additionalProperties": {"type": "string"}}
    if kind.startswith("list<"):
        return schema | {"type": ["array", "null"], "items": {"type": item}}
    if column.name in CODES:
        return schema | {"enum": [*CODES[column.name], None]}
    return schema | {"type": [item, "null"]}


def with_table(text: str, name: str, table: str) -> str:
    """Put a table between its marks.

    Raises:
        ValueError: the marks are not there.
    """
    mark, end = f"<!-- made by docs/tables.py: {name} -->\n", "<!-- end -->\n"
    before, start, behind = text.partition(mark)
    _, stop, after = behind.partition(end)
    if not start or not stop:
        raise ValueError(f"no {mark.strip()} … {end.strip()}")
    return f"{before}{mark}\n{table}\n{end}{after}"


def axes() -> str:
    """The table of axes, as they are declared on the fields of a point."""
    defaults = {item.name: _default(item) for item in fields(Point)}
    rows = [
        (f"`{name}`", defaults[name], axis.unit, _values(name), axis.meaning)
        for name, axis in AXES.items()
    ]
    return _table(("field", "default", "unit", "values", "meaning"), rows)


def settings(kind: type[Measure | Resources | Search]) -> str:
    """The table of the fields of `Measure`, `Resources` or `Search`, by their docstrings."""
    meanings = _docstrings(kind)
    rows = [(f"`{item.name}`", _default(item), meanings[item.name]) for item in fields(kind)]
    return _table(("setting", "default", "meaning"), rows)


def _default(item: Field[Any]) -> str:
    value = item.default if item.default_factory is MISSING else item.default_factory()
    return f"`{value!r}`"


def _values(name: str) -> str:
    """The choices of an axis, or its bounds."""
    axis = AXES[name]
    if FIELD_TYPES[name] is bool:
        return "`True`, `False`"
    or_none = ["or None"] if type(None) in get_args(FIELD_TYPES[name]) else []
    bounds = {"≥": axis.least, ">": axis.above, "≤": axis.most, "<": axis.below}
    known = [f"{sign} {bound}" for sign, bound in bounds.items() if bound is not None]
    return ", ".join([*(f"`{choice}`" for choice in axis.choices), *known, *or_none])


def modes() -> str:
    """The table of sync modes, as they are declared."""
    sends = "bytes sent per step"
    header = ("mode", "semantics", "reads", "default", sends, "memory", "exchange by", "tried on")
    rows = [
        (
            f"`{name}`",
            _semantics(name),
            _code(mode.reads),
            _code(mode.reads.values()),
            mode.sends,
            mode.memory,
            _method(mode),
            tried_on(f"sync={name}"),
        )
        for name, mode in MODES.items()
    ]
    return _table(header, rows)


def _semantics(mode: str) -> str:
    """The semantics of a mode by default, and with the least value of an axis that changes them."""
    usual = Point(sync=mode).semantics
    words = [f"`{usual}`"]
    for name in MODES[mode].reads:
        least: Any = AXES[name].least
        if least is None:
            continue
        other = Point(sync=mode, **{name: least}).semantics
        if other != usual:
            words.append(f"with `{name}={least}` `{other}`")
    return "; ".join(words)


def _method(mode: ModeInfo) -> str:
    """The column `comm_method` of a mode."""
    if mode.shares_memory:
        return "–"
    return "difference" if mode.can_leave_out else "wait"


def exchange() -> str:
    """The table of columns on the exchange, and of the modes that have them."""
    columns: dict[str, Callable[[ModeInfo], bool]] = {
        "`comm_method` is `difference`": lambda mode: _method(mode) == "difference",
        "`comm_method` is `wait`": lambda mode: _method(mode) == "wait",
        "`exchange_isolated_s`": lambda mode: mode.can_exchange_alone,
        "`gradients_agree`": lambda mode: mode.agree == "gradients",
    }
    rows = []
    for what, has in columns.items():
        rows.append((what, _code(name for name, mode in MODES.items() if has(mode))))
    return _table(("column", "modes"), rows)


def _code(values: Iterable[Any]) -> str:
    return ", ".join(f"`{value}`" for value in values) or "–"


_TOGETHER = {
    "all_reduce": "added up on the way",
    "all_gather": "everybody gets all",
    "all_to_all": "each worker averages a share",
}
"""How payloads come together, by `EXCHANGES`."""


def compressions() -> str:
    """The table of compressions, as they are declared."""
    header = (
        "compression",
        "payload of N values",
        "how payloads come together",
        "bytes sent per step in `ddp`",
        "error feedback",
        "tried on",
    )
    rows = [
        (
            f"`{name}`",
            info.payload,
            _TOGETHER[info.exchange],
            info.sends,
            _yes(info.has_feedback),
            tried_on(f"compression={name}"),
        )
        for name, info in COMPRESSIONS.items()
    ]
    return _table(header, rows)


def _yes(holds: bool) -> str:
    return "yes" if holds else "no"


def carriers() -> str:
    """The table of modes and compressions: pairs that work, and the constraint on the others."""
    found = {
        (mode, name): _reason(Point(sync=mode, compression=name))
        for mode in MODES
        for name in COMPRESSIONS
    }
    reasons = list(dict.fromkeys(filter(None, found.values())))
    words = {
        pair: f"no ({reasons.index(reason) + 1})" if reason else "yes"
        for pair, reason in found.items()
    }
    rows = [(f"`{mode}`", *(words[mode, name] for name in COMPRESSIONS)) for mode in MODES]
    table = _table(("carried by", *(f"`{name}`" for name in COMPRESSIONS)), rows)
    return (
        table + "\n" + "".join(f"{number}. {reason}\n" for number, reason in enumerate(reasons, 1))
    )


def _reason(point: Point) -> str | None:
    """Reason why a point can't be measured, for any mode and compression; None if it can."""
    applying = (
        constraint.reason for constraint in CONSTRAINTS if constraint.applies(point, Harness())
    )
    reason = next(applying, None)
    return reason and reason.replace("{point.sync}", "the mode").replace(
        "{point.compression}", "the compression"
    )


def _docstrings(kind: type) -> dict[str, str]:
    """The docstring of each field of a dataclass, in one line."""
    (body,) = [
        node.body
        for node in ast.parse(inspect.getsource(kind)).body
        if isinstance(node, ast.ClassDef)
    ]
    found = {}
    for statement, behind in itertools.pairwise(body):
        match statement, behind:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(
                value=ast.Constant(value=str(text))
            ):
                found[name] = " ".join(text.split())
    return found


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [" | ".join(cells) for cells in (header, *rows)]
    rule = "|" + "---|" * len(header)
    return "".join(
        f"{line}\n" for line in (f"| {lines[0]} |", rule, *(f"| {line} |" for line in lines[1:]))
    )


if __name__ == "__main__":
    write_pages()
