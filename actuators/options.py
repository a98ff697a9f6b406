"""Options of a backend as the configuration file gives them: checked at once, all problems together."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails

from actuators.model import ActuatorError


def _http_url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"expected a URL that starts with http:// or https://, found {value!r}")
    return value.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]
Seconds = Annotated[float, Field(gt=0, le=60)]


class OptionsError(ActuatorError):
    """Options that cannot be used. `problems`: one line a mistake, each beginning with the option's path."""

    def __init__(self, message: str, problems: Sequence[str]) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


class Options(BaseModel):
    """Base of a backend's options. An option that nothing reads is an error, not a silent habit."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Options)


def parse_options(model: type[Model], name: str, options: Mapping[str, object]) -> Model:
    """Check `options` against `model`; raises OptionsError that names every problem by its path."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        known = sorted(model.model_fields)
        problems = [_told(item, known) for item in error.errors()]
        raise OptionsError(
            f"options of actuator {name!r}: expected {', '.join(known)}, found problems"
            f" ({'; '.join(problems)}): correct them",
            problems,
        ) from error


def _told(item: ErrorDetails, known: Sequence[str]) -> str:
    path = ".".join(str(part) for part in item["loc"])
    if item["type"] == "missing":
        return f"{path}: expected a value, found none; add it"
    if item["type"] == "extra_forbidden":
        close = difflib.get_close_matches(path, known, n=1)
        advice = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
        return f"{path}: expected a known option, found {path!r}; {advice}"
    if item["type"] == "value_error":
        return f"{path}: {item['msg'].removeprefix('Value error, ')}; correct it"
    expected = item["msg"].replace("Input should be ", "expected ", 1)
    return f"{path}: {expected}, found {item['input']!r:.60}; correct it"
