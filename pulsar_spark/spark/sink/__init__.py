"""The sink: what a task sends (task), what is promised of it (delivery), what the driver does then (driver).

Owns de-duplication and transactions of micro-batches as Spark names them, and the report of what is written.
Its decisions are pure: decide_dedup, commit_plan, commit_records, TaskSearch. It must not know how anything
is read, nor import spark/plan.
"""
