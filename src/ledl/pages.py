"""HTML pages: each is one file that loads nothing from elsewhere. `templates/` has one template for each page.

Every page extends ``base.html``. Values are escaped unless a template marks them as safe, and a value that a
template uses but does not get is an error.
"""

from __future__ import annotations

import base64
from functools import cache
from typing import Any
from unicodedata import category

from ledl.text import is_printable


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
        finalize=visible,
    )
    found.filters["data_uri"] = data_uri
    found.globals["version"] = ledl.__version__
    return found


def render(template: str, **values: Any) -> str:
    """Return the page that a template makes of some values."""
    return str(environment().get_template(template).render(values))


def visible(value: Any) -> Any:
    """Return text with escapes for characters that nobody sees, or that change the order of others.

    Names come from strangers. Text that is marked as safe, and other values, stay as they are.
    """
    if not isinstance(value, str) or hasattr(value, "__html__") or is_printable(value):
        return value
    return "".join(
        c if is_printable(c) or c in "\n\t" or category(c) == "Zs" else c.encode("unicode_escape").decode()
        for c in value
    )


def data_uri(content: bytes, kind: str) -> str:
    """Return an image file of this kind ("png", "jpeg") as an address that holds all of it."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
