# Of pytest, for unit tests: more than cores, since many tests wait.
UNIT_PROCESSES = "6"
