"""YAML as the configuration needs it: a key given twice is a mistake, not a silent choice of the last one."""

from __future__ import annotations

from collections.abc import Iterator

import yaml


class YamlError(ValueError):
    """The text is not YAML: one sentence with the place."""


def read(text: str) -> tuple[object, list[str]]:
    """The document, and one problem for each key given twice. Raises YamlError."""
    try:
        root = yaml.compose(text, yaml.SafeLoader)
        if root is None:
            return None, []
        return yaml.safe_load(text), list(_repeated(root, "", set()))
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # ValueError: a day that no month has
        raise YamlError(" ".join(str(error).split())) from error


def path_of(location: tuple[int | str, ...]) -> str:
    """`pools.a.targets[1].url`; the empty string for the top."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in location)
    return text.removeprefix(".")


def _repeated(node: yaml.Node, path: str, seen: set[int]) -> Iterator[str]:
    if id(node) in seen:  # an alias: told where it is anchored, and a circle ends here
        return
    seen.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            yield from _repeated(item, f"{path}[{number}]", seen)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            inner = f"{path}.{key.value}".removeprefix(".")
            line = key.start_mark.line + 1
            if key.value in lines:
                yield (f"{inner}: expected each key once, found it in lines {lines[key.value]} and {line}; remove one")
            lines.setdefault(key.value, line)
            yield from _repeated(value, inner, seen)
