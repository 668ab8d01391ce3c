"""Values of schemas in Avro's JSON: their types, AVRO payloads -> columns, and columns -> payloads.

To read, two schemas are resolved to a tree of steps, which runs over all rows at once. Owns what bytes mean
and which of them are wrong. Must not know Pulsar's schemas around Avro's.
"""
