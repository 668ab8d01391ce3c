"""Print docs/options.md, or with the argument ``errors`` docs/errors.md."""

import sys

from pulsar_spark import errors
from pulsar_spark.spark.options import parse

if __name__ == "__main__":
    page = {(): parse.docs_page, ("errors",): errors.docs_page}[tuple(sys.argv[1:])]
    sys.stdout.write(page())
