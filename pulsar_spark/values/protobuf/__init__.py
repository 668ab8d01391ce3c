"""Values of PROTOBUF_NATIVE schemas: definitions by a topic's descriptors, and parsed messages -> columns.

Owns the topic's descriptors, which others wrote and which never reach protobuf's runtime as they are.
"""
