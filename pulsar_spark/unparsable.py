"""Errors that protobuf raises for bytes that are no message.

UnicodeDecodeError and RecursionError are raised by the runtime without C code, whose older versions have no
limit for nested groups.
"""

from google.protobuf.message import DecodeError

UNPARSABLE = (DecodeError, UnicodeDecodeError, RecursionError)
