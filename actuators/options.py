"""Options of a backend as the configuration file gives them: checked at once, all problems together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from actuators.model import ActuatorError


def _http_url(value: str) -> str:
    if not value.startswith(("http://", "https://")):
        raise ValueError(f"expected a URL that starts with http:// or https://, found {value!r}")
    return value.rstrip("/")


HttpUrl = Annotated[str, AfterValidator(_http_url)]
Seconds = Annotated[float, Field(gt=0, le=60)]


class Options(BaseModel):
    """Base of a backend's options. An option that nothing reads is an error, not a silent habit."""

    model_config = ConfigDict(extra="forbid", frozen=True)


Model = TypeVar("Model", bound=Options)


def parse_options(model: type[Model], name: str, options: Mapping[str, object]) -> Model:
    """Check `options` against `model`; raises ActuatorError that names every problem by its path."""
    try:
        return model.model_validate(dict(options))
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in item['loc'])}: {item['msg']}" for item in error.errors()
        )
        known = ", ".join(sorted(model.model_fields))
        raise ActuatorError(
            f"options of actuator {name!r}: expected {known}, found problems ({problems}): correct them"
        ) from error
