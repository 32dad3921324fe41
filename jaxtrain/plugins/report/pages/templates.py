"""Fills the templates of pages, `.html.j2`, which lie beside the code that uses them.

What a template prints is escaped, and a name that it is not given is an error. A page
has no script, and its policy forbids any.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtrain.plugins.report.pages.text import breakable, duration, share, shown, text

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = Path(__file__).parents[3]


def render(template: str, **values: object) -> bytes:
    """Return a whole page.

    Args:
      template: Path of the template in the package.
      values: What the template shows, by name; plain text unless it is `Markup`.
    """
    return environment().get_template(template).render(values).encode()


@functools.cache
def environment() -> "Environment":
    """Return what the templates are read by."""
    # Imported here: it takes 50 ms, and runs that write no page import this module.
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(PACKAGE),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=text,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    for function in (breakable, duration, share, shown):
        made.filters[function.__name__] = function
    return made
