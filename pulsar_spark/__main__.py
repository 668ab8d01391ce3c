"""``python -m pulsar_spark``: the command line."""

import sys

from pulsar_spark.cli import main

if __name__ == "__main__":
    sys.exit(main())
