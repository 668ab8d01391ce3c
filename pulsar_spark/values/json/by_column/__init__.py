"""JSON payloads -> a column, all values of a node at a time: what is usual, proven row by row.

What is not read here is read by ``general``, row by row, which decides what JSON is read as what. Three ways,
one after the other: ``arrow_read`` reads types that Arrow has too by PyArrow's own reader; ``fast`` goes
along payloads that are laid out alike (``shape`` learns how); ``tape_read`` reads any layout, by the tokens
of all payloads (``tape``).
"""
