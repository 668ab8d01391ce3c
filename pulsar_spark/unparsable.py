"""Errors that protobuf raises for bytes that are no message.

The runtime without C code raises the last two, because its older versions have no limit for nested groups.
"""

from google.protobuf.message import DecodeError

UNPARSABLE = (DecodeError, UnicodeDecodeError, RecursionError)
