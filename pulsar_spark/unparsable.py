"""Errors that protobuf's parser raises for invalid bytes.

Only the pure-Python runtime raises UnicodeDecodeError and RecursionError; the latter because its older
versions do not limit the nesting of groups.
"""

from google.protobuf.message import DecodeError

UNPARSABLE = (DecodeError, UnicodeDecodeError, RecursionError)
