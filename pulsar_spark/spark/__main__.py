"""Print docs/options.md."""

import sys

from pulsar_spark.spark.options import docs_page

if __name__ == "__main__":
    sys.stdout.write(docs_page())
