"""Print docs/options.md, or with the argument ``columns`` or ``errors`` the page of that name."""

import sys

from pulsar_spark import error_table
from pulsar_spark.spark import options_page
from pulsar_spark.spark.rows import columns_page

if __name__ == "__main__":
    pages = {
        (): options_page.docs_page,
        ("columns",): columns_page.docs_page,
        ("errors",): error_table.docs_page,
    }
    sys.stdout.write(pages[tuple(sys.argv[1:])]())
