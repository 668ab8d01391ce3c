"""The descriptor set that protoc writes -> a PROTOBUF_NATIVE schema, for topics that do not have one."""

from __future__ import annotations

import base64
import json

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from pulsar_spark.errors import OptionError
from pulsar_spark.schema import Schema, SchemaType
from pulsar_spark.unparsable import UNPARSABLE
from pulsar_spark.values.protobuf.definition import messages_of

_SHOWN = 20  # names of messages in an error
_MAKE_IT = "Make the file with protoc --include_imports --descriptor_set_out=FILE"


def protobuf_schema(descriptors: bytes, message: str) -> Schema:
    """Make the schema of values that are a message of a descriptor set.

    It has the file that defines the message and what that imports, without comments: tasks get all of it.

    Args:
        descriptors: a serialized FileDescriptorSet.
        message: its full name.

    Raises:
        OptionError: it is not a descriptor set, lacks the message or a file that is imported, or has several
            messages of that name.
        SchemaError: a name in it is too long, or not UTF-8.
    """
    try:
        given = FileDescriptorSet.FromString(descriptors)
    except UNPARSABLE:
        raise OptionError("the file of valueSchema is not a descriptor set", advice=_MAKE_IT) from None
    files_of: dict[str, list[FileDescriptorProto]] = {}
    for file in given.file:
        for each in messages_of(file):
            if not each.proto.options.map_entry:
                files_of.setdefault(each.name, []).append(file)
    if message not in files_of:
        raise OptionError(
            f"messageName is {message!r}, which the file of valueSchema does not define",
            advice=f"Its messages are {_shown(sorted(files_of))}" if files_of else _MAKE_IT,
        )
    defining = files_of[message]
    if len(defining) > 1:
        raise OptionError(
            f"the file of valueSchema defines {message} {len(defining)} times, in "
            f"{_shown([file.name for file in defining])}",
            advice=_MAKE_IT,
        )
    needed = _needed(defining[0], {file.name: file for file in given.file})
    kept = FileDescriptorSet(file=[file for file in given.file if file.name in needed])
    for file in kept.file:
        file.ClearField("source_code_info")
    told = {
        "fileDescriptorSet": base64.b64encode(kept.SerializeToString()).decode(),
        "rootMessageTypeName": message,
    }
    return Schema(SchemaType.PROTOBUF_NATIVE, json.dumps(told).encode())


def _needed(root: FileDescriptorProto, files: dict[str, FileDescriptorProto]) -> set[str]:
    """The names of a file and of all that it imports, directly or not."""
    found = {root.name}
    left = [root]
    while left:
        file = left.pop()
        for name in file.dependency:
            if name not in files:
                raise OptionError(
                    f"the file of valueSchema lacks {name}, which {file.name} imports", advice=_MAKE_IT
                )
            if name not in found:
                found.add(name)
                left.append(files[name])
    return found


def _shown(names: list[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
