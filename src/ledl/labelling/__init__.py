"""Label a folder of images on a page: ``ledl label``. Needs the extra ``label``."""

from ledl.labelling._export import write
from ledl.labelling._opening import Options, opened
from ledl.labelling._server import serve

__all__ = ["Options", "opened", "serve", "write"]
