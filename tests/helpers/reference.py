"""The paper's algorithms, transcribed: the oracles that the solvers are proven against.

Samples and atoms are columns, as in the paper; the label-consistency transform A is the full
K x K matrix; atoms are updated one by one. Where the paper is silent the decisions of
``docs/paper_to_code.md`` hold. Nothing here is clever, and nothing here imports ledl.
"""

import numpy as np

UNUSED = 1e-12  # a numerator below this share of its target's norm leaves the atom as it is


def one_hot_columns(labels, n_classes):
    """H: column i is the indicator of the class of sample i."""
    H = np.zeros((n_classes, len(labels)))
    H[labels, np.arange(len(labels))] = 1.0
    return H


def label_consistency_targets(labels, atom_classes):
    """Q: q_ki = 1 where atom k and sample i have the same class."""
    return (np.asarray(atom_classes)[:, None] == np.asarray(labels)[None, :]).astype(float)


def soft_threshold(V, threshold):
    """The paper's eq. for Z, with the all-ones matrix in place of "the identity"."""
    return np.maximum(V - threshold, 0.0) + np.minimum(V + threshold, 0.0)


def updated_column(numerator, old, target_norm):
    norm = np.linalg.norm(numerator)
    return numerator / norm if norm > UNUSED * target_norm else old


def code_update(X, H, Q, B, W, A, Z, L, *, lam, omega, epsilon, rho, theta):
    K = B.shape[1]
    gram = B.T @ B + lam * (W.T @ W) + omega * (A.T @ A) + rho * np.eye(K)
    C = np.linalg.solve(gram, B.T @ X + lam * (W.T @ H) + omega * (A.T @ Q) + rho * Z - L)
    Z = soft_threshold(C + L / rho, epsilon / rho)
    L = L + theta * (C - Z)
    return C, Z, L


def atom_update(X, H, Q, B, W, A, C, order=None):
    """In turn: each atom sees those already updated (in place on B, W and A)."""
    D = (C @ C.T) * (1.0 - np.eye(C.shape[0]))
    XC, HC, QC = X @ C.T, H @ C.T, Q @ C.T
    norms = [np.linalg.norm(target) for target in (X, H, Q)]
    for k in range(C.shape[0]) if order is None else order:
        B[:, k] = updated_column(XC[:, k] - B @ D[:, k], B[:, k], norms[0])
        W[:, k] = updated_column(HC[:, k] - W @ D[:, k], W[:, k], norms[1])
        A[:, k] = updated_column(QC[:, k] - A @ D[:, k], A[:, k], norms[2])


def augmented_objective(X, H, Q, B, W, A, C, Z, L, *, lam, omega, epsilon, rho):
    """The paper's eq. 6, with 2 L'(C - Z): the one whose minimisers the updates are."""
    return (
        np.sum((X - B @ C) ** 2)
        + lam * np.sum((H - W @ C) ** 2)
        + omega * np.sum((Q - A @ C) ** 2)
        + 2.0 * epsilon * np.abs(Z).sum()
        + 2.0 * np.sum(L * (C - Z))
        + rho * np.sum((C - Z) ** 2)
    )


def ledl(
    X,
    labels,
    atom_classes,
    B,
    W,
    A,
    *,
    lam,
    omega,
    epsilon,
    rho=1.0,
    theta=0.5,
    theta_decay=0.99,
    theta_min=1e-4,
    n_iter=30,
    order=None,
):
    """Algorithm 3 from the start (B, W, A); yields (B, W, A, C, Z, L) after every iteration.

    Atoms are updated in this order; by default as they stand.
    """
    n_classes, n = W.shape[0], X.shape[1]
    H = one_hot_columns(labels, n_classes)
    Q = label_consistency_targets(labels, atom_classes)
    B, W, A = B.copy(), W.copy(), A.copy()
    Z = np.zeros((B.shape[1], n))
    L = np.zeros_like(Z)
    for _ in range(n_iter):
        C, Z, L = code_update(
            X, H, Q, B, W, A, Z, L, lam=lam, omega=omega, epsilon=epsilon, rho=rho, theta=theta
        )
        theta = max(theta * theta_decay, theta_min)
        atom_update(X, H, Q, B, W, A, C, order)
        yield B, W, A, C, Z, L


def src_residuals(X, labels, y, s):
    """The paper's (2): what the samples of each class, as columns of X, leave of y with their codes."""
    return np.array([np.sum((y - X[:, labels == c] @ s[labels == c]) ** 2) for c in range(labels.max() + 1)])


def ksvd(Y, D, n_nonzero, n_iter, omp):
    """K-SVD with the approximate atom update; `omp(D, y, n_nonzero)` codes one sample. D is overwritten.

    Yields D and the codes after every iteration. A sample whose new code is worse keeps the old one; no atom
    is replaced.
    """
    X = np.zeros((D.shape[1], Y.shape[1]))
    for _ in range(n_iter):
        for i in range(Y.shape[1]):
            x = omp(D, Y[:, i], n_nonzero)
            if np.sum((Y[:, i] - D @ x) ** 2) <= np.sum((Y[:, i] - D @ X[:, i]) ** 2):
                X[:, i] = x
        for k in range(D.shape[1]):
            users = np.flatnonzero(X[k])
            if users.size:
                x = X[:, users].copy()
                x[k] = 0
                E = Y[:, users] - D @ x
                d = E @ X[k, users]
                D[:, k] = d / np.linalg.norm(d)
                X[k, users] = E.T @ D[:, k]
        yield D, X


def lcksvd(X, labels, atom_classes, B, *, lam, omega, n_nonzero, n_iter, omp):
    """The paper's Algorithm 2 from the class-wise dictionary B on, with the full Q and A: B, W, A, S."""
    H = one_hot_columns(labels, labels.max() + 1)
    Q = label_consistency_targets(labels, atom_classes)
    S = np.stack([omp(B, x, n_nonzero) for x in X.T], axis=1)
    inverse = np.linalg.inv(S @ S.T + np.eye(len(S)))
    A, W = Q @ S.T @ inverse, H @ S.T @ inverse
    D = np.concatenate([B, np.sqrt(omega) * A, np.sqrt(lam) * W])
    Y = np.concatenate([X, np.sqrt(omega) * Q, np.sqrt(lam) * H])
    *_, (D, S) = ksvd(Y, D / np.linalg.norm(D, axis=0), n_nonzero, n_iter, omp)
    d, K = len(X), len(atom_classes)
    B, A, W = D[:d], D[d : d + K] / np.sqrt(omega), D[d + K :] / np.sqrt(lam)
    norms = np.linalg.norm(B, axis=0)
    return B / norms, W / norms, A / norms, S * norms[:, None]


def csdl(X, B, *, alpha, n_iter, lasso):
    """Class-specific dictionary learning for the samples X of one class; `lasso(B, x, alpha)` codes one."""
    for _ in range(n_iter):
        S = np.stack([lasso(B, x, alpha) for x in X.T], axis=1)
        for k in range(B.shape[1]):
            others = S.copy()
            others[k] = 0
            B[:, k] = updated_column((X - B @ others) @ S[k], B[:, k], np.linalg.norm(X))
    return B
