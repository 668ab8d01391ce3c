"""Pages that are made of the package's own tables; not in the wheel."""
