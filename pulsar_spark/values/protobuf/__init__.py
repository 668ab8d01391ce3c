"""Values of PROTOBUF_NATIVE schemas: the definitions of a topic's descriptors, and parsed messages -> columns.

Owns the topic's descriptors, which others wrote and which never reach protobuf's runtime as they are.
"""
