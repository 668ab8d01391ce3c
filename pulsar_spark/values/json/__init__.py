"""Values of JSON schemas -> columns, and columns -> JSON.

Owns what JSON is read as what, and how it is written. Must not know other kinds of schemas, except for the
tree of Avro's types.

    ==========================  ======================================================================
    both readers                ``json_read`` chooses between them; ``tree``, and ``json_types`` above: what
                                is read as what; ``leaf_columns``
    reader by PyArrow           ``arrow_read``: lines in their plain form
    reader by objects           ``parse``: text to objects; ``objects``: objects to columns, with ``unions``
                                and ``leaves``; ``budget``: what a payload may take
    writer                      ``json_write``
    ==========================  ======================================================================
"""
