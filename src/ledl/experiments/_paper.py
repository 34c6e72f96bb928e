"""The datasets of the comparison, and what the paper reports on them. Imports nothing: the command line's help
needs it.
"""

# The paper's table 1: classification rates in %.
PAPER_TABLE = {
    "yaleb": {"SRC": 79.1, "CRC": 79.2, "CSDL-SRC": 80.2, "LC-KSVD": 73.5, "LEDL": 81.3},
    "pie": {"SRC": 73.7, "CRC": 73.3, "CSDL-SRC": 77.4, "LC-KSVD": 67.1, "LEDL": 77.7},
    "ucmerced": {"SRC": 80.4, "CRC": 80.7, "CSDL-SRC": 80.5, "LC-KSVD": 79.4, "LEDL": 80.7},
    "aid": {"SRC": 71.6, "CRC": 72.6, "CSDL-SRC": 71.6, "LC-KSVD": 70.2, "LEDL": 72.9},
    "caltech101_pyramid": {"SRC": 89.4, "CRC": 89.4, "CSDL-SRC": 89.4, "LC-KSVD": 88.3, "LEDL": 90.1},
    "usps": {"SRC": 78.4, "CRC": 77.9, "CSDL-SRC": 78.8, "LC-KSVD": 71.1, "LEDL": 81.1},
}

# In the order of the paper's table; Caltech101's second row is ours: the paper has the pyramid only.
PAPER_DATASETS = ("yaleb", "pie", "ucmerced", "aid", "caltech101_pyramid", "caltech101", "usps")
DATASET_TITLES = {
    "digits": "digits",
    "yaleb": "Extended YaleB",
    "pie": "CMU PIE",
    "ucmerced": "UC Merced",
    "aid": "AID",
    "caltech101_pyramid": "Caltech101, pyramid",
    "caltech101": "Caltech101, pool5",
    "usps": "USPS",
}
