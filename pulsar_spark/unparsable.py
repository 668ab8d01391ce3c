"""Errors that protobuf's parser raises for invalid bytes.

Only protobuf's pure-Python runtime raises UnicodeDecodeError and RecursionError. RecursionError is raised by
its older versions, which do not limit the nesting of groups.
"""

from google.protobuf.message import DecodeError

UNPARSABLE = (DecodeError, UnicodeDecodeError, RecursionError)
