"""The schemas of docs/schemas, and a check of outputs that tests share."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from referencing import Registry, Resource

from tests.pages import ROOT

SCHEMAS: dict[str, Any] = {
    path.stem: json.loads(path.read_text("utf-8"))
    for path in (ROOT / "docs/schemas").glob("*.json")
}
"""By command; `common` and `columns` are parts of the others."""


@cache
def validator(command: str) -> Draft202012Validator:
    """Validator of what a command prints with `--json`."""
    files = {f"{name}.json": Resource.from_contents(schema) for name, schema in SCHEMAS.items()}
    return Draft202012Validator(SCHEMAS[command], registry=Registry().with_resources(files.items()))


def check_output(command: str, values: Any) -> None:
    """Fail where an output is not as its schema says."""
    error = best_match(validator(command).iter_errors(values))
    assert error is None, f"{command}: {error.json_path}: {error.message[-500:]}"
