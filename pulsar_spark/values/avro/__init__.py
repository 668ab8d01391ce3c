"""Values of schemas in Avro's JSON: their types, AVRO payloads -> columns, and columns -> payloads.

``resolve`` makes a tree of steps from two schemas, and ``readers`` run the steps over all rows at once. Owns
the meaning and the validity of bytes. Must not know schemas that contain Avro's, such as KEY_VALUE.
"""
