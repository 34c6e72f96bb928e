"""The digits of scikit-learn, a few to train on and some to predict."""

from sklearn.datasets import load_digits

from ledl.datasets import few_shot_splits


def few_digits(n_new, **options):
    """Return a few training samples with labels, and `n_new` new samples with labels."""
    X, y = load_digits(return_X_y=True)
    train, test = next(few_shot_splits(y, **options))
    return X[train], y[train], X[test[:n_new]], y[test[:n_new]]
