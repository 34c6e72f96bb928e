"""Hot loops for tensors on a GPU, one kernel each. Imported on first use."""

from __future__ import annotations

from itertools import pairwise

import torch
import triton
import triton.language as tl

from ledl.arrays import Array

# Largest width of atoms for which one program can hold the changes of a block in its registers. Wider atoms are
# read from memory, in strips of so many columns.
NARROW, STRIP = 512, 256
# Number of entries that one program of an elementwise pass handles.
CHUNK = 4096


def update_block(
    G: Array,
    S: Array,
    M: Array,
    D: Array,
    first: int,
    bounds: tuple[int, ...],
    radii: Array,
    floors: Array,
) -> Array:
    """Return the result of `ledl.solvers.atoms.update_block_plain`, for tensors: a program for each problem."""
    *problems, size, q = S.shape
    n_problems = M.numel() // (M.shape[-2] * q)
    G, S = G.contiguous(), S.clone(memory_format=torch.contiguous_format)  # S is overwritten by wide atoms
    radii, floors = (x.to(M.dtype).contiguous() for x in (radii, floors))
    decrease = torch.zeros((*problems, len(bounds) - 1), dtype=torch.float64, device=M.device)
    rows, columns = triton.next_power_of_2(size), triton.next_power_of_2(q)
    parts = list(pairwise(bounds))
    ends = [stop for _, stop in parts] + [q] * (3 - len(parts))
    kernel, columns = (_update_block, columns) if q <= NARROW else (_update_wide_block, STRIP)
    kernel[(n_problems,)](
        G, S, M, D, radii, floors, decrease, first, size, M.shape[-2], q, *ends[:2], len(parts),
        ROWS=rows, COLUMNS=columns, PARTS=len(parts), num_warps=16 if rows * columns > 8192 else 4,
    )  # fmt: skip
    return decrease


@triton.jit
def _update_block(
    G, S, M, D, radii, floors, decrease, first, size, K, q, end0, end1, n_parts,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    problem = tl.program_id(0).to(tl.int64)
    rows, columns = tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    inside = columns < q
    part_of = (columns >= end0).to(tl.int32) + (columns >= end1).to(tl.int32)
    G += problem * size * size
    S += problem * size * q
    M += (problem * K + first) * q
    D += (problem * K + first) * q
    changes = tl.zeros((ROWS, COLUMNS), dtype=S.dtype.element_ty)
    for i in range(size):
        earlier = tl.load(G + i * size + rows, mask=rows < i, other=0.0)
        m = tl.load(M + i * q + columns, mask=inside, other=0.0)
        s = tl.load(S + i * q + columns, mask=inside, other=0.0)
        numerator = s + tl.load(G + i * size + i) * m - tl.sum(earlier[:, None] * changes, axis=0)
        new = m
        for j in tl.static_range(PARTS):
            part = inside & (part_of == j)
            norm = tl.sqrt(tl.sum(tl.where(part, numerator * numerator, 0.0), axis=0))
            floor, radius = tl.load(floors + problem * n_parts + j), tl.load(radii + problem * n_parts + j)
            if norm > floor:
                new = tl.where(part, numerator * (radius / norm), new)
        change = new - m
        for j in tl.static_range(PARTS):
            # On the sphere, |T - C M|^2 is -2 <numerator, m_k> and a constant.
            along = tl.where(inside & (part_of == j), numerator.to(tl.float64) * change.to(tl.float64), 0.0)
            place = decrease + problem * n_parts + j
            tl.store(place, tl.load(place) + 2 * tl.sum(along, axis=0))
        tl.store(M + i * q + columns, new, mask=inside)
        tl.store(D + i * q + columns, change, mask=inside)
        changes = tl.where(rows[:, None] == i, change[None, :], changes)


@triton.jit
def _update_wide_block(
    G, S, M, D, radii, floors, decrease, first, size, K, q, end0, end1, n_parts,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, PARTS: tl.constexpr,
):  # fmt: skip
    """Update a block in strips of columns, twice for each atom: numerators, which replace S, then new atoms."""
    problem = tl.program_id(0).to(tl.int64)
    rows, strip, parts = tl.arange(0, ROWS), tl.arange(0, COLUMNS), tl.arange(0, 4)
    G += problem * size * size
    S += problem * size * q
    M += (problem * K + first) * q
    D += (problem * K + first) * q
    radius = tl.load(radii + problem * n_parts + parts, mask=parts < PARTS, other=0.0)
    floor = tl.load(floors + problem * n_parts + parts, mask=parts < PARTS, other=0.0)
    total = tl.zeros((4,), dtype=tl.float64)
    for i in range(size):
        earlier = tl.load(G + i * size + rows, mask=rows < i, other=0.0)
        g = tl.load(G + i * size + i)
        squares = tl.zeros((4,), dtype=S.dtype.element_ty)
        for start in range(0, q, COLUMNS):
            columns = start + strip
            inside = columns < q
            changes = tl.load(
                D + rows[:, None] * q + columns[None, :], mask=(rows[:, None] < i) & inside[None, :], other=0.0
            )
            m = tl.load(M + i * q + columns, mask=inside, other=0.0)
            numerator = tl.load(S + i * q + columns, mask=inside, other=0.0) + g * m
            numerator -= tl.sum(earlier[:, None] * changes, axis=0)
            tl.store(S + i * q + columns, numerator, mask=inside)
            part_of = (columns >= end0).to(tl.int32) + (columns >= end1).to(tl.int32)
            belongs = (part_of[None, :] == parts[:, None]) & inside[None, :]
            squares += tl.sum(tl.where(belongs, (numerator * numerator)[None, :], 0.0), axis=1)
        norm = tl.sqrt(squares)
        scale = tl.where(norm > floor, radius / tl.where(norm > floor, norm, 1.0), 0.0)
        tl.debug_barrier()  # wait for the writes of other threads
        for start in range(0, q, COLUMNS):
            columns = start + strip
            inside = columns < q
            part_of = (columns >= end0).to(tl.int32) + (columns >= end1).to(tl.int32)
            belongs = (part_of[None, :] == parts[:, None]) & inside[None, :]
            factor = tl.sum(tl.where(belongs, scale[:, None], 0.0), axis=0)
            m = tl.load(M + i * q + columns, mask=inside, other=0.0)
            numerator = tl.load(S + i * q + columns, mask=inside, other=0.0)
            new = tl.where(factor > 0, numerator * factor, m)
            change = new - m
            tl.store(M + i * q + columns, new, mask=inside)
            tl.store(D + i * q + columns, change, mask=inside)
            along = numerator.to(tl.float64) * change.to(tl.float64)
            total += 2 * tl.sum(tl.where(belongs, along[None, :], 0.0), axis=1)
        tl.debug_barrier()
    tl.store(decrease + problem * n_parts + parts, total, mask=parts < PARTS)


def shrink(
    C: Array, old: Array, L: Array, epsilon: Array, rho: Array, theta: float
) -> tuple[Array, Array, Array]:
    """Return the result of `ledl.solvers.ledl.shrink_plain`, for tensors, in one pass."""
    *problems, n, K = C.shape
    C, old, L = (x.contiguous() for x in (C, old, L))
    Z, new_L = torch.empty_like(C), torch.empty_like(L)
    n_chunks = triton.cdiv(n * K, CHUNK)
    sums = torch.empty((*problems, n_chunks, 5), dtype=torch.float64, device=C.device)
    epsilon, rho = (x.to(C.dtype).expand(*problems, 1, 1).contiguous() for x in (epsilon, rho))
    step = torch.full((1,), theta, dtype=C.dtype, device=C.device)  # a plain number would be passed in float32
    grid = (n_chunks * (C.numel() // (n * K)),)  # one axis: others end at 65,535, and samples may be problems
    _shrink[grid](C, old, L, Z, new_L, sums, epsilon, rho, step, n * K, n_chunks, CHUNK=CHUNK, num_warps=8)
    return Z, new_L, sums.sum(dim=-2)


@triton.jit
def _shrink(C, old, L, Z, new_L, sums, epsilon, rho, theta, size, n_chunks, CHUNK: tl.constexpr):
    program = tl.program_id(0).to(tl.int64)
    chunk, problem = program % n_chunks, program // n_chunks
    offset = chunk * CHUNK + tl.arange(0, CHUNK)
    inside = offset < size
    place = problem * size + offset
    penalty = tl.load(rho + problem)
    threshold = tl.load(epsilon + problem) / penalty
    c = tl.load(C + place, mask=inside, other=0.0)
    dual = tl.load(L + place, mask=inside, other=0.0)
    v = c + dual / penalty
    z = v - tl.minimum(tl.maximum(v, -threshold), threshold)
    gap = c - z
    dual += tl.load(theta) * gap
    change = z - tl.load(old + place, mask=inside, other=0.0)
    tl.store(Z + place, z, mask=inside)
    tl.store(new_L + place, dual, mask=inside)
    sums += program * 5
    tl.store(sums, tl.sum(tl.abs(z).to(tl.float64), axis=0))
    tl.store(sums + 1, tl.sum(dual.to(tl.float64) * gap.to(tl.float64), axis=0))
    tl.store(sums + 2, tl.sum(gap.to(tl.float64) * gap.to(tl.float64), axis=0))
    tl.store(sums + 3, tl.sum(change.to(tl.float64) * change.to(tl.float64), axis=0))
    tl.store(sums + 4, tl.sum((z != 0).to(tl.float64), axis=0))


def reflect(
    v: Array, product: Array, ridge: Array, relaxation: float, threshold: Array, positive: bool
) -> tuple[Array, Array]:
    """Return the result of `ledl.solvers.lasso.reflect_plain` in one pass; v and `product` are overwritten."""
    *problems, m, K = v.shape
    v, product, ridge = (x.contiguous() for x in (v, product, ridge))
    threshold = threshold.to(v.dtype).expand(*problems, 1, 1).contiguous()
    grid = (triton.cdiv(m * K, CHUNK), v.numel() // (m * K))
    options = {"RELAXATION": relaxation, "POSITIVE": positive, "CHUNK": CHUNK}
    _reflect[grid](v, product, ridge, threshold, m * K, **options, num_warps=8)
    return v, product


@triton.jit
def _reflect(
    v, product, ridge, threshold, size,
    RELAXATION: tl.constexpr, POSITIVE: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    problem = tl.program_id(1).to(tl.int64)
    offset = tl.program_id(0).to(tl.int64) * CHUNK + tl.arange(0, CHUNK)
    inside = offset < size
    place = problem * size + offset
    limit = tl.load(threshold + problem)
    old = tl.load(v + place, mask=inside, other=0.0)
    z = tl.load(product + place, mask=inside, other=0.0) + tl.load(ridge + place, mask=inside, other=0.0)
    if POSITIVE:
        new = old + RELAXATION * (z - tl.maximum(old - limit, 0.0))
        s = tl.maximum(new - limit, 0.0)
    else:
        new = old + RELAXATION * (z - (old - tl.minimum(tl.maximum(old, -limit), limit)))
        s = new - tl.minimum(tl.maximum(new, -limit), limit)
    tl.store(v + place, new, mask=inside)
    tl.store(product + place, 2 * s - new, mask=inside)
