"""Options that are one of a few words."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn


class Choice(str, Enum):
    """A word of a short list. Another one is refused by a message that has the list."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        raise ValueError(f"{value!r} is none of the choices, which are {', '.join(member.value for member in cls)}")
