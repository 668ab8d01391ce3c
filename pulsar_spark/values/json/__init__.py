"""Values of JSON schemas -> columns, and columns -> JSON.

Owns what JSON is read as what, and how it is written. Must not know other kinds of schemas, except for the
tree of Avro's types.

    ==========================  ======================================================================
    reader by column            ``by_column``: what is usual
    reader by row               ``general``, ``columns``, ``nested_columns``, ``leaves``: all the rest
    both                        ``json_read`` chooses between them; ``tree``, ``json_types`` above,
                                ``make_tree``: what is read as what; ``scan``: tokens
    writer                      ``json_write``
    ==========================  ======================================================================
"""
