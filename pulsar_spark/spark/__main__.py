"""Print docs/options.md, or with the argument ``errors`` docs/errors.md."""

import sys

from pulsar_spark import errors
from pulsar_spark.spark.options.docs_page import docs_page

if __name__ == "__main__":
    page = {(): docs_page, ("errors",): errors.docs_page}[tuple(sys.argv[1:])]
    sys.stdout.write(page())
