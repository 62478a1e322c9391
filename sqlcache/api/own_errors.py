"""An exception for each of several who are to have the same."""

from collections.abc import Iterator
from copy import copy
from types import GetSetDescriptorType, MemberDescriptorType


def own(error: Exception) -> Exception:
    """Another of the same type, with the same arguments, attributes and cause, and notes of its
    own; the very same where none can be made that is surely alike."""
    try:
        made = copy(error)
    except Exception:  # whatever its class does when it is made
        return error
    if made is error or type(made) is not type(error) or not _is_alike(made, error):
        return error
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    if hasattr(error, "__notes__"):
        made.__notes__ = list(error.__notes__)
    return made.with_traceback(error.__traceback__)


def _is_alike(one: Exception, other: Exception) -> bool:
    """Whether they have the very same arguments and attributes."""
    if len(one.args) != len(other.args) or vars(one).keys() != vars(other).keys():
        return False
    parts = [*zip(one.args, other.args, strict=True)]
    parts += [(vars(one)[name], vars(other)[name]) for name in vars(one)]
    names = set(_described(type(one)))
    parts += [(getattr(one, name, None), getattr(other, name, None)) for name in names]
    return all(part is of_other for part, of_other in parts)


def _described(kind: type) -> Iterator[str]:
    """The attributes that are not in the `vars` of its objects, beside those of all exceptions."""
    for each in kind.__mro__[: kind.__mro__.index(BaseException)]:
        for name, value in vars(each).items():
            if isinstance(value, MemberDescriptorType | GetSetDescriptorType):
                yield name
