"""Values of schemas in Avro's JSON: their types, AVRO payloads -> columns, and columns -> payloads.

``resolve`` makes a tree of steps of two schemas, which ``readers`` run over all rows at once. Owns the
meaning of bytes, and which of them are wrong. Must not know Pulsar's schemas around Avro's.
"""
