"""Rendering of Jinja templates: `.html.j2` files next to the code that uses them.

Values are escaped, and undefined names are errors. Pages have no scripts, and their
content security policy forbids scripts.
"""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from jaxtrain.plugins.report.pages.text import breakable, duration, share, shown, text

if TYPE_CHECKING:
    from jinja2 import Environment

PACKAGE = Path(__file__).parents[3]


def render(template: str, **values: object) -> bytes:
    """Render a page or section as UTF-8 HTML.

    Args:
      template: Path of the template in the package.
      values: Variables of the template; escaped unless they are `Markup`.
    """
    return environment().get_template(template).render(values).encode()


@functools.cache
def environment() -> "Environment":
    """Jinja environment of the templates."""
    # Not imported at the top: jinja2 takes 50 ms, even in runs without a report.
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
