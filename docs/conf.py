"""Configuration of the documentation: `make docs` builds it, without a network, and warnings are errors."""

import importlib.util
import inspect
import os
import re

import matplotlib
from sphinx_gallery.sorting import ExplicitOrder

import ledl

matplotlib.use("agg")
# Examples are small: more threads would only make them slower.
os.environ.setdefault("OMP_NUM_THREADS", "1")

project = "ledl"
copyright = "the ledl developers; BSD-3 licence"  # noqa: A001 (Sphinx's name for it)
author = "The ledl developers"
version = release = ledl.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",  # formulas are readable without a network
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = [
    "_build",
    "_templates",
    "label_page.md",
    "gallery/**/*.ipynb",
    "gallery/*.ipynb",
    "gallery/*.py",
]
templates_path = ["_templates"]
default_role = "py:obj"
smartquotes = False  # C' is a transpose
nitpicky = False

# Markdown: the pages are also read on code hosts, so links are relative paths of files.
myst_enable_extensions = ["dollarmath", "colon_fence"]
myst_heading_anchors = 3
BENCHMARKS = "(../benchmarks/README.md)"  # outside of this folder; benchmarks.md includes it

# Reference
autosummary_generate = True
autodoc_typehints = "none"  # docstrings have types, in words
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False


def own_members(cls: type) -> list[tuple[str, str]]:
    """Return kind and name of each public member that this package wrote; scikit-learn documents its own."""
    members = []
    for name in dir(cls):
        found = inspect.getattr_static(cls, name)
        kind = "property" if isinstance(found, property) else "method"
        found = getattr(found, "fget", getattr(found, "__func__", found))  # of properties and class methods
        written = inspect.unwrap(found).__module__ if inspect.isfunction(found) else ""
        if written.startswith("ledl") and not name.startswith("_"):
            members.append((kind, name))
    return members


MODULES = [
    ledl,
    ledl.datasets,
    ledl.features,
    ledl.plots,
    ledl.explanations,
    ledl.persistence,
    ledl.experiments,
]
PUBLIC = {f"{module.__name__}.{name}": getattr(module, name) for module in MODULES for name in module.__all__}
# For the template of class pages.
autosummary_context = {
    "own_members": {name: own_members(found) for name, found in PUBLIC.items() if inspect.isclass(found)}
}

# Gallery, from the easy to the special. Examples whose dataset or GPU is missing are not run: their pages show
# the code alone. So every figure was computed on the data that its page names.
NEEDED_DATASETS = {"plot_faces.py": "yaleb", "plot_cnn_features.py": "ucmerced"}
EXAMPLES = [
    "plot_digits.py",
    "plot_faces.py",
    "plot_cnn_features.py",
    "plot_compare_methods.py",
    "plot_explanations.py",
    "plot_model_selection.py",
    "plot_sparse_codes.py",
    "plot_kernels.py",
    "plot_calibration.py",
    "plot_gpu.py",
]


def can_run(example: str) -> bool:
    """Return whether the dataset, or the GPU, of the example is here."""
    if example == "plot_gpu.py":
        return has_gpu()
    here = {found.name for found in ledl.datasets.available() if found.status == "here"}
    return NEEDED_DATASETS.get(example, "digits") in here


def has_gpu() -> bool:
    """Return whether PyTorch is installed and finds a GPU."""
    if importlib.util.find_spec("torch") is None:
        return False
    import torch

    return torch.cuda.is_available()


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "|".join(re.escape(example) for example in EXAMPLES if can_run(example)),
    "ignore_pattern": r"(__init__|nearest_subspace|own_method)\.py",
    "within_subsection_order": ExplicitOrder([*EXAMPLES, "*"]),
    "backreferences_dir": "api/backreferences",
    "doc_module": ("ledl",),
    "reference_url": {"ledl": None},
    "capture_repr": ("_repr_html_",),  # tables; not what matplotlib returns
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "remove_config_comments": True,
    "matplotlib_animations": False,
}

# Pages
html_theme = "pydata_sphinx_theme"
html_title = "ledl"
html_static_path = ["_static"]
html_css_files = ["ledl.css"]
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "ledl"},
    "navbar_align": "left",
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    # Pages with wide tables have no list of their sections.
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        **{page: [] for page in ("index", "results", "defaults", "benchmarks")},
    },
    "show_prev_next": False,
    "show_toc_level": 2,
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
# Pages without subpages have no navigation of their section.
html_sidebars = {page: [] for page in ("index", "getting_started", "gallery/index", "search", "genindex")}


def link_benchmarks(app: object, page: str, source: list[str]) -> None:
    """Point links to the benchmarks' README to the page here that includes it."""
    source[0] = source[0].replace(BENCHMARKS, "(benchmarks.md)")


def setup(app: object) -> None:
    """Connect the hook; Sphinx calls this."""
    app.connect("source-read", link_benchmarks)  # type: ignore[attr-defined]
