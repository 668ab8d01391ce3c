"""Changes a few values of JSON ``{topic: {part: value}}``, and shares the unchanged topics. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TypeVar

T = TypeVar("T")
Key = tuple[str, str]


def updated(
    before: Mapping[str, dict[str, T]], changed: Mapping[Key, T], gone: Iterable[Key] = ()
) -> dict[str, dict[str, T]]:
    """Returns a copy with the values of ``changed`` partitions, and without the partitions in ``gone``.

    Topics without a change are shared with ``before``, so neither may be changed. The order is fixed: by
    topic, and by the number of the partition or segment.
    """
    lost, new = defaultdict[str, set[str]](set), defaultdict[str, dict[str, T]](dict)
    for base, part in gone:
        lost[base].add(part)
    for (base, part), value in changed.items():
        new[base][part] = value
    found = {**before}
    for base in lost.keys() | new.keys():
        parts = {part: value for part, value in found.get(base, {}).items() if part not in lost[base]}
        is_sorted = new[base].keys() <= parts.keys()
        parts |= new[base]
        found[base] = parts if is_sorted else {part: parts[part] for part in sorted(parts, key=_number)}
    names = found if found.keys() == before.keys() else sorted(found)
    return {base: found[base] for base in names if found[base]}


def _number(part: str) -> int:
    """Returns the number of a partition or segment; -1 for a topic without partitions."""
    return -1 if part == "-1" else int(part.rpartition("-")[2])
