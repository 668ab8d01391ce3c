"""The sink: how a task sends rows (task), its guarantee (delivery), and the driver's work after it (driver).

This package owns the deduplication and the transactions of micro-batches, which Spark names, and the report
of what a batch wrote. Its decisions are pure: decide_dedup, commit_steps, commit_records, TaskSearch. It must
not know how anything is read, nor import spark/plan.
"""
