"""Options that are one of a few words."""

from __future__ import annotations

import re
from enum import Enum
from typing import NoReturn


class Choice(str, Enum):
    """A word of a short list. Another one is refused by a message that has the list."""

    @classmethod
    def _missing_(cls, value: object) -> NoReturn:
        name = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", cls.__name__).lower()  # BlurBoundary: blur boundary
        choices = ", ".join(member.value for member in cls)
        raise ValueError(f"{value!r} is none of the choices for the {name}, which are {choices}")
