"""What commands are served under on the straight path: what the session is until something turns
it."""

from sqlcache.cache import entry
from sqlcache.cache.reads import Read
from sqlcache.mysql.constants import Capability, Status
from sqlcache.mysql.scan import Plain
from sqlcache.plan.contexts import Context
from sqlcache.plan.state import SessionState
from sqlcache.proxy.transaction import TransactionView

_TELLS_OF_SESSION = entry.SESSION_STATUS | Status.DB_DROPPED


class Terms:
    """See above. Without a context nothing is served so."""

    __slots__ = ("_state", "capabilities", "context", "deprecate_eof", "schema", "settled",
                 "status", "view")  # fmt: skip

    def __init__(self) -> None:
        self.context: Context | None = None
        """Where the plans are."""
        self.schema: str | None = None
        """The default schema, as far as it is known here."""
        self.view: TransactionView | None = None
        self._state: SessionState | None = None
        self.status = 0
        self.settled = False
        """Whether the server has told all it has to tell of the session."""
        self.capabilities = 0
        self.deprecate_eof = False

    def set(
        self, context: Context | None, view: TransactionView | None, state: SessionState
    ) -> None:
        """From here on they are these: the plans of this context, for a session that stands so, in
        this open transaction."""
        self.settled = not state.owes_changes
        self._state = state
        self.context = context
        self.schema = None if context is None else context.schema
        self.view = view
        self.status = state.status
        capabilities = state.capabilities
        if capabilities != self.capabilities:
            self.capabilities = capabilities
            self.deprecate_eof = bool(capabilities & Capability.DEPRECATE_EOF)

    @property
    def names_commits(self) -> bool:
        """See `SessionState`."""
        return self._state is not None and self._state.names_commits

    def may_look_up(self, like: Read) -> bool:
        """Whether a read like this may be a hit, of which nothing has to be known but what a
        look-up tells."""
        view = self.view
        return view is None or (like.rolls_back and not (view.uncacheable or like.may_be_stale))

    def changed_by(self, status: int) -> int:
        """The flags by which an answer with this status tells of another session."""
        return (status ^ self.status) & _TELLS_OF_SESSION

    def turned_by(self, found: Plain) -> bool:
        """Whether an answer tells of another session than that of before, or of warnings."""
        return bool(found[1] or (found[0] ^ self.status) & _TELLS_OF_SESSION)

    def begun_by(self, found: Plain) -> bool:
        """Whether all that it tells is that the transaction has begun that was awaited."""
        awaited = self.view is not None and bool(found[0] & Status.IN_TRANS)
        changed = self.changed_by(found[0]) & ~Status.IN_TRANS_READONLY  # as its session has it
        return awaited and changed == Status.IN_TRANS and not found[1]
