"""Know code and objects by digests: results of a method of a user are not taken for those of another one."""

from __future__ import annotations

import copyreg
import hashlib
import inspect
import json
import random
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

PLAIN = (int, float, str, tuple)  # values that are a part of the code that has them


def code_digests(*values: Any) -> dict[str, str]:
    """Return the sha256 of the code of estimators and functions, and of all that they hold, by module.

    That is all code of a module; of a notebook or script, the code that is used. Raise if a file is not what
    was imported. Python's own modules are left out.
    """
    met: dict[Any, None] = {}
    described(values, met)
    parts: dict[str, dict[Any, None]] = {}
    for part in met:
        if part.__module__ and not _is_pythons_own(part.__module__):
            _add_used(part, parts.setdefault(part.__module__, {}))
    digests = {}
    for name, own in parts.items():
        texts = map(_typed_in, own) if name == "__main__" else [_imported(name, own)]
        both = [*sorted(texts), *sorted(map(_bound, own))]  # sets have any order
        digests[name] = hashlib.sha256("\n".join(both).encode()).hexdigest()
    return digests


def _is_pythons_own(module: str) -> bool:
    """Return whether a module is one of Python's own: a file of a user may have the name of one."""
    file = getattr(sys.modules.get(module), "__file__", None)
    is_named_so = module.partition(".")[0] in sys.stdlib_module_names
    return is_named_so and (file is None or Path(file).is_relative_to(sysconfig.get_path("stdlib")))


def _add_used(part: Any, found: dict[Any, None]) -> None:
    """Add a class or function to `found`, and all classes and functions of its module that it uses."""
    found[part] = None
    known = getattr(sys.modules.get(part.__module__), "__dict__", {})
    for value in [known.get(name) for code in _codes(part) for name in code.co_names]:
        is_code = isinstance(value, type | FunctionType)
        if is_code and value not in found and value.__module__ == part.__module__:
            _add_used(value, found)


def _codes(thing: Any) -> Iterator[CodeType]:
    """Yield the compiled code of a function, or of the methods of a class, with that of inner functions."""
    if isinstance(thing, CodeType):
        yield thing
        for one in thing.co_consts:
            yield from _codes(one) if isinstance(one, CodeType) else ()
    elif isinstance(thing, type):
        for one in vars(thing).values():  # methods, those of the class itself, and properties
            yield from _codes(getattr(one, "__func__", getattr(one, "fget", one)))
    elif isinstance(thing, FunctionType):
        yield from _codes(getattr(thing, "__wrapped__", thing.__code__))


def _imported(module: str, parts: Iterable[Any]) -> str:
    """Return the text of a module, of which these are used. Raise if it is not the text that was imported."""
    try:
        text, file = inspect.getsource(sys.modules[module]), inspect.getsourcefile(sys.modules[module])
    except (KeyError, OSError, TypeError):  # compiled, or built in
        return ""
    try:
        on_disk = set(_codes(compile(text, str(file), "exec", dont_inherit=True)))
    except SyntaxError:
        on_disk = set()
    if any(code not in on_disk for part in parts for code in _codes(part) if code.co_filename == file):
        raise ValueError(
            f"{file} has changed since it was imported, and results would not be those of the file. Start "
            f"Python again, or call importlib.reload(sys.modules[{module!r}])."
        )
    return text


def _bound(part: Any) -> str:
    """Return the numbers and texts that a class has, or that a function got when it was made."""
    if isinstance(part, type):
        own = [(name, value) for name, value in vars(part).items() if not name.startswith("__")]
    else:
        inner = [cell.cell_contents for cell in part.__closure__ or ()]
        own = [("", value) for value in (*(part.__defaults__ or ()), *inner)]
    return "\n".join(f"{name} = {value!r}" for name, value in own if isinstance(value, PLAIN))


def _typed_in(part: Any) -> str:
    """Return the code of a class or function of a notebook or script, with the numbers and texts in it."""
    known, lines = vars(sys.modules["__main__"]), [part.__qualname__]
    for code in _codes(part):
        constants = [x for x in code.co_consts if not isinstance(x, CodeType)]
        constants = [sorted(map(repr, x)) if isinstance(x, frozenset) else x for x in constants]
        lines.append(f"{code.co_name} {code.co_code.hex()} {constants} {code.co_names}")
        lines += [f"{name} = {known[name]!r}" for name in code.co_names if isinstance(known.get(name), PLAIN)]
    return "\n".join(lines)


def described(value: Any, met: dict[Any, None] | None = None, above: tuple[int, ...] = ()) -> Any:
    """Return a value as JSON can hold it: plain values as they are, all others by a digest of their content.

    Equal values have equal descriptions in every process. Functions and classes are described by their names
    and the values that they hold, and added to `met`: `code_digests` knows their code. Raise ValueError if an
    object hides its content. `above` has the ids of the objects that hold this one.
    """
    met = {} if met is None else met
    if value is None or isinstance(value, str | int | float):
        return value
    if isinstance(value, np.generic):
        return described(value.item(), met, above) if value.dtype.kind in "biufSU" else repr(value)
    if id(value) in above:
        return f"the object {above[::-1].index(id(value))} above"
    inside = partial(described, met=met, above=(*above, id(value)))
    if isinstance(value, Mapping):
        if all(isinstance(name, str) for name in value):
            return {name: inside(one) for name, one in value.items()}
        return sorted([[inside(name), inside(one)] for name, one in value.items()], key=json.dumps)
    if isinstance(value, list | tuple):
        return [inside(one) for one in value]
    if isinstance(value, set | frozenset):
        return sorted(map(inside, value), key=json.dumps)
    if isinstance(value, bytes | bytearray):
        return _digest("bytes", value)
    if type(value) in (np.ndarray, np.memmap) and not value.dtype.hasobject:
        what = f"array {value.dtype} {value.shape}"
        if value.dtype.names:  # between its fields may be bytes that mean nothing
            return _digest(what, [inside(value[name]) for name in value.dtype.names])
        return _digest(what, np.ascontiguousarray(value).tobytes())
    name = _name_of(value)
    if isinstance(value, FunctionType):
        met[value] = None
        closed_over = [cell.cell_contents for cell in value.__closure__ or ()]
        content = inside([value.__defaults__, value.__kwdefaults__, closed_over])
        return name if content == [None, None, []] else _digest(name, content)
    if isinstance(value, BuiltinFunctionType):
        owner = value.__self__  # of a method: the object
        return name if owner is None or isinstance(owner, ModuleType) else _digest(name, inside(owner))
    if isinstance(value, np.ufunc | ModuleType):
        return name
    met |= dict.fromkeys((value if isinstance(value, type) else type(value)).__mro__)
    if isinstance(value, type):
        return name
    inner = getattr(value, "py_func", getattr(value, "__wrapped__", None))
    if isinstance(inner, FunctionType):  # compiled by numba, or with a cache
        return _digest(name, inside(inner))
    if hasattr(value, "get_params") and hasattr(value, "__dict__"):
        is_fitted = any(key.endswith("_") and not key.startswith("_") for key in vars(value))
        return _digest(name, inside(vars(value) if is_fitted else value.get_params(deep=False)))
    if value is np.random.mtrand._rand or value is random._inst:
        return name  # what all share that get none: its state is nobody's setting
    reduce = copyreg.dispatch_table.get(type(value))
    try:
        content = reduce(value) if reduce else value.__reduce_ex__(4)
    except Exception as error:  # locks, generators, open files, and whatever a class of a user raises
        raise ValueError(
            f"{value!r:.80} cannot be distinguished from others ({error}), so that results could not be kept. "
            "Give an object that can be pickled."
        ) from error
    if isinstance(content, str):
        return f"{name} {content}"
    parts = [list(part) if isinstance(part, Iterator) else part for part in content]
    is_distribution = any(one.__module__.startswith("scipy.stats.") for one in type(value).__mro__)
    if is_distribution and len(parts) > 2 and isinstance(parts[2], dict):
        # NumPy's generator as this process has it, or a copy: what draws from the distribution has its own.
        parts[2] = {key: one for key, one in parts[2].items() if key != "_random_state"}
    return _digest(name, inside(parts))


def _name_of(value: Any) -> str:
    """Return the full name of a function, class or module, or of the class of any other object."""
    if isinstance(value, ModuleType | np.ufunc):
        return f"{type(value).__name__} {value.__name__}"
    one = value if hasattr(value, "__qualname__") and hasattr(value, "__module__") else type(value)
    return f"{one.__module__}.{one.__qualname__}"


def _digest(what: str, content: Any) -> str:
    """Return text that names a kind of value, and changes with its content."""
    data = content if isinstance(content, bytes | bytearray) else json.dumps(content, sort_keys=True).encode()
    return f"{what} {hashlib.sha256(data).hexdigest()}"
