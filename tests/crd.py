"""Documents against KubeRay's own schemas, as Kubernetes checks them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

FILES = {"RayJob": "ray.io_rayjobs.yaml", "RayCluster": "ray.io_rayclusters.yaml"}

TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}


@cache
def schema_of(kind: str) -> Mapping[str, Any]:
    """Schema of a kind of documents, of the version that is stored."""
    folder = Path(os.environ.get("DTSWEEP_TEST_DATA", "")) / "kuberay"
    if not folder.is_dir():
        pytest.skip("DTSWEEP_TEST_DATA names no folder with kuberay")
    # In C: the schemas have 20,000 lines.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    crd = yaml.load((folder / FILES[kind]).read_text("utf-8"), Loader=loader)
    (stored,) = [version for version in crd["spec"]["versions"] if version["storage"]]
    schema: Mapping[str, Any] = stored["schema"]["openAPIV3Schema"]
    return schema


def faults_of(document: Mapping[str, Any]) -> list[str]:
    """Faults of a document; a field that the schema does not have is one, too.

    Kubernetes would take such a field out and say nothing.
    """
    metadata = document["metadata"]
    unknown = set(metadata) - {"name", "labels", "annotations"}
    texts = [*metadata.get("labels", {}).values(), *metadata.get("annotations", {}).values()]
    faults = [f"metadata.{name}: unknown" for name in unknown]
    faults += [f"metadata: {text!r} is not text" for text in texts if not isinstance(text, str)]
    return [*faults, *_faults(document, schema_of(document["kind"]), "")]


def _faults(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    if schema.get("x-kubernetes-int-or-string"):
        if not isinstance(value, (int, str)) or isinstance(value, bool):
            yield f"{path}: {value!r} is neither integer nor text"
        return
    if "type" in schema:
        expected = TYPES[schema["type"]]
        is_truth = isinstance(value, bool) and schema["type"] != "boolean"
        if is_truth or not isinstance(value, expected):
            yield f"{path}: {value!r} is no {schema['type']}"
            return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is not one of {schema['enum']}"
    if "minimum" in schema and value < schema["minimum"]:
        yield f"{path}: {value!r} is less than {schema['minimum']}"
    if isinstance(value, dict):
        yield from _faults_of_object(value, schema, path)
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _faults(item, schema["items"], f"{path}[{index}]")


def _faults_of_object(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{path}.{name}: missing"
    properties = schema.get("properties", {})
    others = schema.get("additionalProperties")
    keeps_all = schema.get("x-kubernetes-preserve-unknown-fields", False) or path == ".metadata"
    for name, item in value.items():
        if name in properties:
            yield from _faults(item, properties[name], f"{path}.{name}")
        elif isinstance(others, dict):
            yield from _faults(item, others, f"{path}.{name}")
        elif not keeps_all and others is not True:
            yield f"{path}.{name}: unknown"
