"""The sink: a task sends rows (task) with a guarantee (delivery); the driver completes the batch (driver).

This package owns the deduplication and the transactions of micro-batches, which Spark numbers, and the report
of a batch. Its decisions are pure: decide_dedup, commit_steps, commit_records. It must not depend on reading,
nor import spark/plan.
"""
