"""Long runs that break things on purpose; `python -m integration.chaos NAME` runs one."""
