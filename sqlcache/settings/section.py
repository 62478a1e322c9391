"""What every section has, and what several of them ask of their values.

- A value is judged before it is taken: true is no number, and sizes may have units.
- A secret stays as it was when the settings were read.
"""

import re
from pathlib import Path
from typing import Any, ClassVar, Final, Self, get_args

from pydantic import BaseModel, ConfigDict, PrivateAttr, SecretStr, ValidationInfo, field_validator

_SIZE: Final = re.compile(r"([0-9]{1,12}) ?([KMG])iB")


class Section(BaseModel):
    """Settings that never change; what is given by another name is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    SECRET_FILE: ClassVar[str] = ""
    """The setting that is a file whose content is taken when the settings are read, if any."""
    _secret: SecretStr | None = PrivateAttr(default=None)

    def differs(self, other: Self, name: str) -> bool:
        """Whether a setting is another one there; a secret's file also where its content is."""
        if getattr(self, name) != getattr(other, name):
            return True
        is_file = name == self.SECRET_FILE and getattr(self, name) is not None
        return is_file and self._secret != other._secret

    def _keep_secret(self, text: str | None) -> None:
        """Whoever is handed these settings goes by this one, whatever the file has by then."""
        self._secret = None if text is None else SecretStr(text)

    def _kept_secret(self) -> str | None:
        return None if self._secret is None else self._secret.get_secret_value()

    @field_validator("*", mode="before")
    @classmethod
    def _truth_is_no_number(cls, value: object, info: ValidationInfo) -> object:
        """Else `near_bytes = true` would be a byte."""
        if isinstance(value, bool) and info.field_name is not None:
            kinds = _kinds_of(cls.model_fields[info.field_name].annotation)
            if not kinds.isdisjoint((int, float)):
                raise ValueError(f"expected a {'whole ' if int in kinds else ''}number")
        return value

    @field_validator("*", mode="before")
    @classmethod
    def _sizes_may_have_units(cls, value: object, info: ValidationInfo) -> object:
        """Takes `64MiB` for 67108864."""
        named = info.field_name is not None and info.field_name.endswith("_bytes")
        if named and isinstance(value, str) and (size := _SIZE.fullmatch(value.strip())):
            number, unit = size.groups()
            return int(number) << 10 * (1 + "KMG".index(unit))
        return value


def _kinds_of(annotation: Any) -> set[Any]:
    """The types that a value may have."""
    return {annotation, *get_args(annotation)}


def expect_together(certificate: Path | None, key: Path | None) -> None:
    """Raises: ValueError where only one of them is given."""
    if (certificate is None) != (key is None):
        raise ValueError("expected tls_certificate and tls_key together, or neither")


def secret_of(
    name: str, given: SecretStr | None, file: Path | None, *, shortest: int
) -> str | None:
    """The text of a setting, or of the file that it is given as; None where there is neither.
    Raises: ValueError."""
    if file is None:
        return None if given is None else given.get_secret_value()
    if given is not None:
        raise ValueError(f"expected {name}, or {name}_file, not both")
    try:
        text = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError(f"expected in {name}_file a text of ASCII that can be read") from None
    if len(text) < shortest:
        raise ValueError(f"expected at least {shortest} characters in {name}_file")
    return text
