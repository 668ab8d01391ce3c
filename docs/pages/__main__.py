"""Print a page that is made of tables.

python -m docs.pages options | columns | errors
"""

import argparse
import sys

from docs.pages import columns_page, errors_page, options_page

PAGES = {
    "options": options_page.docs_page,
    "columns": columns_page.docs_page,
    "errors": errors_page.docs_page,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m docs.pages")
    parser.add_argument("page", choices=PAGES)
    sys.stdout.write(PAGES[parser.parse_args().page]())
