"""Room for answers, which all sessions share."""


class Room:
    """How much of answers may be held: bytes, of all sessions together."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes

    def take(self, size: int) -> bool:
        """Whether there is room for so many bytes more; `give_back` ends it."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """So many bytes were taken by their client, or thrown away."""
        self._left += size
