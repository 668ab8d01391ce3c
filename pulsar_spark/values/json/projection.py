"""Parts of a column that are read whole: all members of a union are tried, even unwanted ones."""

from __future__ import annotations

import pyarrow as pa


def filled_type(whole: pa.DataType, part: pa.DataType) -> pa.DataType:
    """The type of all fields of ``whole``, each as ``part`` has it where that has it."""
    if pa.types.is_struct(whole):
        fields = []
        for field in whole:
            index = part.get_field_index(field.name)
            below = field.type if index < 0 else filled_type(field.type, part[index].type)
            fields.append(pa.field(field.name, below))
        return pa.struct(fields)
    if pa.types.is_list(whole):
        return pa.list_(pa.field("element", filled_type(whole.value_type, part.value_type)))
    if pa.types.is_map(whole):
        return pa.map_(pa.string(), pa.field("value", filled_type(whole.item_type, part.item_type)))
    return part


def select(column: pa.Array, part: pa.DataType) -> pa.Array:
    """The fields of a column that ``part`` has, in its order.

    Args:
        column: of a type that ``filled_type`` made of ``part``; without an offset.
        part: the type of the result.
    """
    if column.type.equals(part):
        return column
    if pa.types.is_struct(part):
        fields = [select(column.field(field.name), field.type) for field in part]
        return pa.Array.from_buffers(part, len(column), column.buffers()[:1], children=fields)
    if pa.types.is_list(part):
        items = select(column.values, part.value_type)
    else:
        items = pa.StructArray.from_arrays(
            [column.keys, select(column.items, part.item_type)], fields=[part.key_field, part.item_field]
        )
    return pa.Array.from_buffers(part, len(column), column.buffers()[:2], children=[items])
