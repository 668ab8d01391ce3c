"""Prints what the recipe for Iceberg has written, as JSON in the last line: the rows of each table."""

import json

from pyiceberg.catalog import load_catalog

catalog = load_catalog(
    "lake", type="sql", uri="sqlite:////lake/catalog.db", warehouse="file:///lake/warehouse"
)
table = catalog.load_table("db.orders").scan(selected_fields=("customer", "json")).to_arrow()
print(json.dumps({"db.orders": [[row["customer"], row["json"]] for row in table.to_pylist()]}))
