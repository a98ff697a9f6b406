"""Where in a YAML text something stands, so that an error can name line and column."""

from __future__ import annotations

from collections.abc import Sequence

import yaml


def place(root: yaml.Node, path: Sequence[str | int]) -> str:
    """`line N, column M` of the node at `path`, or of the last one on the way that there is.

    Parts that name nothing in the text are passed over: a validator's path also names the kind of an entry.
    """
    node = root
    for part in path:
        node = _child(node, part) or node
    return f"line {node.start_mark.line + 1}, column {node.start_mark.column + 1}"


def _child(node: yaml.Node, part: str | int) -> yaml.Node | None:
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        child: yaml.Node = node.value[part]
        return child
    if isinstance(node, yaml.MappingNode):
        return next((value for key, value in node.value if key.value == part), None)
    return None
