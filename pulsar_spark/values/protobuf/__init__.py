"""Values of PROTOBUF_NATIVE schemas: what a topic's descriptors say, and parsed messages -> columns.

Owns descriptors that others have written, which never reach protobuf's runtime as they are.
"""
