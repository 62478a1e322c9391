"""`[admin]`: where the HTTP door listens, and for whom."""

import re
from typing import Final, Self

from pydantic import Field, SecretStr, model_validator

from sqlcache.settings.section import Section, secret_of
from sqlcache.settings.values import Address, File

_SHORTEST_TOKEN: Final = 8
_TOKEN: Final = re.compile(r"[!-~]([ -~]*[!-~])?")
"""What a header of HTTP can have, and keeps as it is."""


class AdminSettings(Section):
    """The HTTP door: /live, /ready and /metrics for everyone, /api for operators."""

    listen: Address | None = Field(default=None, description="Where it listens; none: not at all.")
    token: SecretStr | None = Field(
        default=None,
        min_length=_SHORTEST_TOKEN,
        description="What /api/ wants as `Authorization: Bearer`. Without one it answers only where"
        " `listen` is an address of this machine alone, as 127.0.0.1 is.",
    )
    token_file: File | None = Field(
        default=None,
        description="A file with the token, as Docker and Kubernetes mount secrets. It is read at"
        " the start, and again by a reload.",
    )

    SECRET_FILE = "token_file"

    @model_validator(mode="after")
    def _token_can_be_sent(self) -> Self:
        token = secret_of("token", self.token, self.token_file, shortest=_SHORTEST_TOKEN)
        if token is not None and not _TOKEN.fullmatch(token):
            raise ValueError("expected in token, or token_file, one line of printable ASCII")
        self._keep_secret(token)
        return self

    def read_token(self) -> str | None:
        """The token, as it was when the settings were read; None where there is none."""
        return self._kept_secret()
