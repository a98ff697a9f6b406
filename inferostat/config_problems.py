"""Mistakes in the configuration as a person reads them: path, expected, found, what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from inferostat.strict_yaml import path_of

SHOWN_CHARACTERS = 60


def schema_problems(error: ValidationError, root: type[BaseModel]) -> list[str]:
    """One line for each error of the schema, in pydantic's order, which is that of the models' fields."""
    return [line for item in error.errors(include_url=False, include_context=True) for line in _lines(item, root)]


def nearest(word: object, known: Iterable[str]) -> str:
    """`; did you mean x?` where something known is near, else the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(str(word), names, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]}?"
    return f"known: {', '.join(names)}" if names else "there is none"


def shown(value: object) -> str:
    """A value on one line, shortened."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 3] + "..."


def _lines(item: Any, root: type[BaseModel]) -> Iterator[str]:
    location = tuple(part for part in item["loc"] if part != "[key]")
    path = path_of(location) or "(top)"
    kind = item["type"]
    if kind == "missing":
        yield f"{path}: expected a value, found none; add it"
    elif kind == "extra_forbidden":
        known = _fields_at(root, location[:-1])
        yield f"{path}: expected a known key, found {str(location[-1])!r}; {nearest(location[-1], known)}"
    elif kind == "value_error":
        for line in str(item["msg"]).removeprefix("Value error, ").splitlines():
            yield f"{path}: {line}"
    else:
        yield f"{path}: {_expected(item)}, found {shown(item['input'])}; {_advice(item)}"


def _expected(item: Any) -> str:
    message = str(item["msg"])
    for prefix in ("Input should be ", "Value should be "):
        if message.startswith(prefix):
            return "expected " + message.removeprefix(prefix)
    return f"expected otherwise ({message[0].lower()}{message[1:]})"


def _advice(item: Any) -> str:
    if item["type"] == "string_type" and not isinstance(item["input"], dict | list | None):
        return "put it in quotes"  # YAML takes a version for a number and a day for a date
    choices = item.get("ctx", {}).get("expected")
    if isinstance(choices, str) and isinstance(item["input"], str):
        found = difflib.get_close_matches(
            item["input"], [part for part in choices.split("'") if part.isidentifier()], n=1
        )
        if found:
            return f"did you mean {found[0]}?"
    return "correct it"


def _fields_at(root: type[BaseModel], location: tuple[int | str, ...]) -> set[str]:
    """Names of the fields of the model at a location of the document."""
    model: type[BaseModel] | None = root
    inside: Any = None  # the annotation of a container we are in
    for part in location:
        if model is not None and isinstance(part, str) and part in model.model_fields:
            inside, model = model.model_fields[part].annotation, None
            model = inside if isinstance(inside, type) and issubclass(inside, BaseModel) else None
        else:
            model = next((one for one in models_in(inside)), None)
    if model is None:
        model = next((one for one in models_in(inside)), None)
    return set(model.model_fields) if model is not None else set()


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Models in an annotation, at whatever depth of containers and unions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)
