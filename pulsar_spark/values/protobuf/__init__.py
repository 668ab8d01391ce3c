"""Reads the descriptors of PROTOBUF_NATIVE schemas, and decodes payloads to columns by Protobuf's runtime.

A topic's descriptors never reach the runtime unchanged, because anyone may have written them.
"""
