"""Room for answers, which all sessions share."""


class Room:
    """How much of answers may be held: bytes, of all sessions together."""

    def __init__(self, max_bytes: int) -> None:
        self._left = max_bytes
        self._held: dict[int, tuple[object, int]] = {}  # with how many have it

    def take(self, size: int) -> bool:
        """Whether there is room for so many bytes more; `give_back` ends it."""
        if size > self._left:
            return False
        self._left -= size
        return True

    def give_back(self, size: int) -> None:
        """So many bytes were taken by their client, or thrown away."""
        self._left += size

    def take_for(self, answer: object, size: int) -> bool:
        """Whether there is room for this very answer, of so many bytes, which counts once for all
        who have it; `give_back_of` ends it for one of them."""
        _, holders = self._held.get(id(answer), (answer, 0))
        if not holders and not self.take(size):
            return False
        self._held[id(answer)] = answer, holders + 1
        return True

    def give_back_of(self, answer: object, size: int) -> None:
        """It was taken by one of the clients that it was sent to, or thrown away."""
        _, holders = self._held.pop(id(answer))
        if holders > 1:
            self._held[id(answer)] = answer, holders - 1
        else:
            self.give_back(size)
