"""What the tests of `ledl label` ask of a session."""


def labels_of(session):
    """Return the names and origins of all labels."""
    found = {}
    for i, name in enumerate(session.names):
        image = session.image(i)
        if image["label"] is not None:
            found[name] = session.classes[image["label"]].name, image["by"]
    return found


def ids_of(session, *names):
    return [session.images[session.names.index(name)].id for name in names]
