"""The JSON schema of a run's settings, by which editors complete and check its YAML file, from the dataclasses."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

from atomizer_io.datasets.registry import list_datasets
from atomizer_io.models.registry import list_models
from atomizer_io.option_types import in_words
from atomizer_io.training.config import Run

PLAIN = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", types.NoneType: "null"}


def schema() -> dict[str, Any]:
    """Return the schema of the YAML file of a run."""
    whole = of_type(Run)
    data, model = whole["properties"]["data"], whole["properties"]["model"]
    data["properties"]["name"]["examples"] = list_datasets()
    model["properties"]["preset"]["examples"] = list_models()
    data["properties"]["parts"] = {"type": "object"}  # boxes, or shares of the width
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "atomizer train", **whole}


def of_type(hint: Any) -> dict[str, Any]:
    """Return the schema of values of a type."""
    origin, inner = typing.get_origin(hint) or hint, typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return of_dataclass(hint)
    if origin in (typing.Union, types.UnionType):
        return {"anyOf": [of_type(part) for part in inner]}
    if origin is typing.Literal:
        return {"enum": list(inner)}
    if origin is tuple and inner[-1] is not ...:
        return {"type": "array", "items": of_type(inner[0]), "minItems": len(inner), "maxItems": len(inner)}
    if origin in (tuple, list):
        return {"type": "array", "items": of_type(inner[0])}
    return {"type": PLAIN[origin]} if origin in PLAIN else {}


def of_dataclass(kind: Any) -> dict[str, Any]:
    """Return the schema of a group of settings: each key with its type, in words too, and its default."""
    hints, properties = typing.get_type_hints(kind), {}
    for field in dataclasses.fields(kind):
        properties[field.name] = of_type(hints[field.name])
        if not dataclasses.is_dataclass(hints[field.name]):
            properties[field.name]["description"] = in_words(hints[field.name])
        if field.default is not dataclasses.MISSING:
            properties[field.name]["default"] = field.default
    return {"type": "object", "properties": properties, "additionalProperties": False}
