"""Sphinx makes the site of these pages: ``python3 -m integration docs``."""

from pulsar_spark.version import VERSION

project = "pulsar_spark"
version = release = VERSION
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
# The reference of the Python API has the docstrings' text; types are of libraries that have no page here.
autodoc_member_order = "bysource"
autodoc_typehints = "none"
nitpick_ignore_regex = [(r"py:.*", r".*")]
# Links to headings work as on GitHub.
myst_heading_anchors = 3
nitpicky = True
html_theme = "furo"
html_title = f"{project} {VERSION}"
html_show_copyright = False
html_show_sphinx = False
html_static_path = ["_static"]
html_css_files = ["site.css"]
