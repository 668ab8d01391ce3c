"""Parses schemas in Avro's JSON, decodes AVRO payloads to columns, and encodes columns as AVRO payloads.

``resolve`` makes a tree of steps from two schemas, and ``avro_read`` runs each step over all rows at once.
Owns the check of AVRO payloads. Must not depend on schemas that contain Avro's, such as KEY_VALUE.
"""
