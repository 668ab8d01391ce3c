"""Values of PROTOBUF_NATIVE schemas: definitions by a topic's descriptors, and parsed messages -> columns.

The topic's descriptors never reach protobuf's runtime unchanged, because anyone may write them.
"""
