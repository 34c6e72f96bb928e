"""HTML pages: each is one file that loads nothing from elsewhere. `templates/` has one template for each page.

Every page extends ``base.html``. Values are escaped unless a template marks them as safe, and a value that a
template uses but does not get is an error.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any


@cache
def environment() -> Any:
    """Return Jinja's environment with the templates, or raise an ImportError that names the extra."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        raise ImportError("HTML pages need Jinja2: pip install 'ledl[cli]'.") from error
    import ledl

    found = Environment(
        loader=PackageLoader("ledl", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    found.filters["data_uri"] = data_uri
    found.globals["version"] = ledl.__version__
    return found


def render(template: str, **values: Any) -> str:
    """Return the page that a template makes of some values."""
    return str(environment().get_template(template).render(values))


def data_uri(content: bytes, kind: str) -> str:
    """Return an image file of this kind ("png", "jpeg") as an address that holds all of it."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
