"""Open the labels of a folder: where they are, whether they are its own, which images there are now."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from sklearn.base import clone

from ledl.files import UNFINISHED, remove_abandoned
from ledl.image_models import find_extractor
from ledl.images import MAX_PIXELS, ImageError, content_key, image_files, is_hidden, shown, unused_lines
from ledl.labelling._at_hand import take_labels
from ledl.labelling._session import RefusedError, Session, is_below
from ledl.labelling._store import LABELS, NAME, BusyError, Store, StoreError, alone, place_of, stored

FEATURES = ("features", "preprocessing", "size")  # options that are kept for the next time
LATEST = 2**63 - 1  # time of change that SQLite holds, in nanoseconds: of the year 2262
MOST_COMPARED = 20  # images, to find out whether labels are theirs


@dataclass(frozen=True)
class Options:
    """Hold the options of ``ledl label``. Those that are None are as they were the last time."""

    folder: Path
    labels: Sequence[str] | None = None  # "folder", "none", paths of tables
    features: str | None = None
    preprocessing: str | None = None
    size: int | None = None
    max_pixels: int | None = None
    store: Path | None = None


@contextmanager
def opened(options: Options, report: Callable[[str], None], *, is_reader: bool = False) -> Iterator[Session]:
    """Open the labels of a folder, and yield the session about them.

    Only one process at a time may write. A reader, for an export, may look at them meanwhile.
    """
    inside, outside = look_into(options.folder, report)
    if options.store is not None:
        check_store(options.folder, options.store)
    # Features that cannot be made are refused before anything is written.
    asked = features_asked(options)
    extractor = extractor_of(asked, options, sorted(inside), report) if asked else None
    place = place_of(options.folder, options.store)
    with stored(place), ExitStack() as stack:
        try:
            stack.enter_context(alone(place))
            is_writer = True
        except BusyError as busy:
            is_writer = False
            where = f"under {busy}. Use this page" if str(busy) else "in another process. Wait for it"
            if not is_reader:
                raise BusyError(
                    f"{shown(options.folder)} is open {where}, or end it there with Ctrl-C."
                ) from None
            if options.labels:
                raise BusyError(
                    f"--labels adds to the labels, but {shown(options.folder)} is open {where}, or end it "
                    "there with Ctrl-C; or leave --labels out to export what was labelled so far."
                ) from None
        if options.store is None and not (place / LABELS).exists():
            check_not_moved(options.folder, inside, place)
        store = Store(place, read_only=not is_writer)
        stack.callback(store.close)
        check_folder(options.folder, inside, store, report)
        if is_writer:
            remove_abandoned(place, f"thumbs/*/{UNFINISHED}")
            store.set(folder=quote(os.fsencode(os.path.realpath(options.folder))))
        if options.max_pixels is not None:
            asked["max_pixels"] = str(options.max_pixels)
        if asked and is_writer:
            store.set(**asked)
        if extractor is None:
            last = {name: store.get(name) for name in FEATURES}
            try:
                extractor = extractor_of(last, options, sorted(inside), report)
            except (ImageError, ImportError, OSError, ValueError) as error:
                raise RefusedError(
                    f"The features of the last time cannot be made: {error} Choose others with --features."
                ) from error
        extractor.set_params(max_pixels=options.max_pixels or int(store.get("max_pixels", str(MAX_PIXELS))))
        before = {image.id for image in store.images() if not image.gone}
        images = store.sync(options.folder, inside) if is_writer else store.images()
        images = [image for image in images if not image.gone and image.path in inside]
        missing = before - {image.id for image in images}
        n_missing = sum(answer.image in missing and answer.label is not None for answer in store.answers())
        n_new = len(inside) - len(images)
        if n_new:
            report(
                f"Images that have come, or got another name, since the page was opened: {n_new}. They are "
                "left out here. End ledl label there with Ctrl-C, and start it again."
            )
        if n_missing:
            report(
                f"Labelled images that are not there any more: {n_missing}. Their labels come back with them."
            )
        session = Session(options.folder, store, images, outside, extractor, is_writer=is_writer)
        stack.callback(session.close)
        if is_writer:
            take_labels(session, options.labels, report)
            session.forget_curve({image.id for image in images} - before)
        yield session


def check_store(folder: Path, store: Path) -> None:
    """Raise RefusedError if a store is a file, or if its thumbnails would be taken for images of the folder."""
    if store.exists() and not store.is_dir():
        raise RefusedError(f"--store {shown(store)} is a file. Give a folder for the labels.")
    top, place = os.path.realpath(folder), os.path.realpath(store)
    if is_below(top, place) and not any(map(is_hidden, Path(os.path.relpath(place, top)).parts)):
        raise RefusedError(
            f"--store {shown(store)} is in {shown(folder)}, so that its thumbnails would be labelled, too. "
            "Choose a folder elsewhere, or one whose name begins with a dot."
        )


def check_folder(
    folder: Path, found: dict[str, tuple[int, int]], store: Store, report: Callable[[str], None]
) -> None:
    """Raise RefusedError if the labels are of other images, whose names may also be names here.

    `found` has size and time of change of the images that are here. A store in the folder itself belongs to it,
    wherever both were copied.
    """
    top, before = os.path.realpath(folder), os.fsdecode(unquote_to_bytes(store.get("folder")))
    if is_below(top, store.place):
        return
    report(f"The labels are in {shown(store.place)}.")
    if before in ("", top):
        if has_other_images(folder, found, store):
            raise RefusedError(
                f"{shown(store.place)} has the labels of other images, which were in {shown(folder)} before "
                "and had the same names. Give another folder with --store. If all images were changed, move "
                f"the labels to {shown(folder / NAME)}."
            )
        return
    if any(Path(before, image.path).is_file() for image in store.images() if not image.gone):
        with suppress(OSError):
            if os.path.samefile(before, top):
                return
        raise RefusedError(
            f"{shown(store.place)} has the labels of {shown(before)}, and images of the same name would get "
            f"them. Give another folder with --store. If {shown(folder)} has the same images, use "
            f"{shown(before)}, or copy the labels to {shown(folder / NAME)}, and leave --store out."
        )
    report(f"The labels are those of {shown(before)}, whose images are not there any more.")


def check_not_moved(folder: Path, found: dict[str, tuple[int, int]], place: Path) -> None:
    """Raise RefusedError if new labels would be begun among the user's data, which has some of these images.

    So it is if a memory card, or another folder that cannot be written to, is at another path now.
    """
    top = os.path.realpath(folder)
    for other in sorted(place.parent.iterdir() if place.name != NAME else ()):
        if other == place:
            continue
        with suppress(StoreError, OSError), closing(Store(other, read_only=True)) as store:
            before = os.fsdecode(unquote_to_bytes(store.get("folder")))
            images = [image for image in store.images() if not image.gone]
            n_here = sum(found.get(image.path, (None, 0))[0] == image.size for image in images)
            is_left = before == top or not any(Path(before, image.path).is_file() for image in images)
            is_same = 2 * n_here > len(images) and not has_other_images(folder, found, store)
            if is_same and is_left and any(answer.label for answer in store.answers()):
                raise RefusedError(
                    f"{shown(folder)} cannot be written to and has no labels yet, but there are labels of "
                    f"images of the same names and sizes, which were in {shown(before)}. To go on with them: "
                    f"--store {shown(other)}. To begin again, give a new folder with --store."
                )


def has_other_images(folder: Path, found: dict[str, tuple[int, int]], store: Store) -> bool:
    """Return whether all images with known names are others: perhaps of another memory card at this place."""
    contents = store.contents()
    known = [
        image for image in store.images() if image.id in contents and image.path in found and not image.gone
    ]
    if any(found[image.path] == (image.size, image.mtime) for image in known):
        return False
    for image in known[:MOST_COMPARED]:
        with suppress(OSError, ImageError):
            if content_key(folder / image.path, is_image=True) == contents[image.id]:
                return False
    return bool(known)


def look_into(
    folder: Path, report: Callable[[str], None]
) -> tuple[dict[str, tuple[int, int]], list[tuple[str, str]]]:
    """Return the images in a folder, with size and time of change, and what is not shown, with reasons."""
    if not folder.is_dir():
        what = "is a file" if folder.exists() else "does not exist"
        raise RefusedError(f"{shown(folder)} {what}. Give the folder with the images.")
    found, unused = image_files([folder])
    inside, outside = dict[str, tuple[int, int]](), list[tuple[str, str]]()
    top = os.path.realpath(folder)
    for file in found:
        name = str(file.relative_to(folder))
        try:
            if not is_below(top, file):
                outside.append((shown(name), "a link to a file outside the folder, which is not shown"))
                continue
            state = file.stat()
            inside[name] = state.st_size, min(max(state.st_mtime_ns, -LATEST), LATEST)
        except OSError as error:
            outside.append((shown(name), f"cannot be read: {error.strerror}"))
    for line in unused_lines([(path, why) for path, why in unused if path.name != NAME]):
        report(line)
    if not inside:
        raise RefusedError(f"{shown(folder)} has no images. Give a folder with images, at any depth.")
    return inside, outside


def features_asked(options: Options) -> dict[str, str]:
    """Return the features that the options ask for, as they are kept for the next time, or nothing."""
    given = {name: getattr(options, name) for name in FEATURES}
    if not any(given.values()):
        return {}
    asked = {name: str(value or "") for name, value in given.items()}
    for name in ("features", "preprocessing"):  # the next time may be in another folder
        if asked[name].endswith((".onnx", ".json")):
            asked[name] = os.path.abspath(asked[name])
    return asked


def extractor_of(
    kept: dict[str, str], options: Options, names: Sequence[str], report: Callable[[str], None]
) -> Any:
    """Return the extractor of features as they are kept. Raise if a network cannot be used."""
    files = [options.folder / name for name in names]
    features, size = kept["features"] or "auto", int(kept["size"]) if kept["size"] else None
    extractor = find_extractor(files, features, kept["preprocessing"] or None, size, None, report)
    if features != "auto":
        clone(extractor).fit()
    return extractor
