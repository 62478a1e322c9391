"""Statements of sqlcache's own on a client's connection to MySQL, to find out what is not known of
its session. They leave that as it was."""

from sqlcache.errors import ConnectionLost
from sqlcache.mysql.constants import Command, Status
from sqlcache.mysql.packets import HEADER_BYTES, packet, query_packet, query_text
from sqlcache.mysql.rows import collation_of, read_text_rows
from sqlcache.plan.commands import WRITES_NOTHING, ClientCommand
from sqlcache.plan.planner import Planner
from sqlcache.plan.reader import ON_THE_LOOP_BYTES
from sqlcache.plan.state import SessionState
from sqlcache.proxy.diagnostics import Diagnostics
from sqlcache.proxy.looking_back import may_look_back, query_finding, query_keeping
from sqlcache.proxy.relay import Relay
from sqlcache.proxy.transaction import TransactionView
from sqlcache.sql.shaping import SESSION_SETTINGS

# Leaves a ROW_COUNT() of 0, and FOUND_ROWS() as it is.
_WRITES_NONE = b"SET SESSION net_retry_count = @@SESSION.net_retry_count"
# As digits, for answers come in the session's character set. The first question, for the next one
# finds rows of its own.
_COUNTS_SCHEMA_ROLE_AND_USER = (
    b"SELECT ROW_COUNT(), FOUND_ROWS(), HEX(CONVERT(DATABASE() USING utf8mb4)),"
    b" HEX(CONVERT(CURRENT_ROLE() USING utf8mb4)), HEX(CONVERT(USER() USING utf8mb4))"
)


class Questions:
    """Those of one session."""

    def __init__(
        self,
        relay: Relay,
        planner: Planner,
        diagnostics: Diagnostics,
        state: SessionState,
        generation: int,
    ) -> None:
        self._relay = relay
        self._planner = planner
        self._diagnostics = diagnostics
        self._state = state
        self.generation = generation
        """Of the globals that the session is known to have begun with."""

    async def learn_settings(self, command: ClientCommand) -> None:
        """Asks the server for the session's settings where they are not known.

        Not before a statement that looks back at the one before it: that must stay the client's.
        Nor where there are warnings: those that read no table keep them for the next; or where the
        answer would tell what it is for the client to know.
        One that comes later could tell by FOUND_ROWS(), which is put back; and by ROW_COUNT(), if
        the command leaves that as it is.
        """
        if self.generation != self._planner.keeper.generation:
            self.generation = self._planner.keeper.generation
            self._state.begins_otherwise(self._planner.keeper.globals)
        if not self._state.settings_unknown or await self._may_look_back(command):
            return
        tells = self._state.variables.tells_of_transactions or self._state.owes_changes
        if tells or self._diagnostics.may_be_kept(command.data):
            return
        if self._state.next_transaction_set:  # which a query of our own would use up
            return
        keeps_counts = command.code in WRITES_NOTHING
        if keeps_counts and self._diagnostics.wrote:
            return
        place = await self.ask(_COUNTS_SCHEMA_ROLE_AND_USER)
        capabilities = self._state.capabilities
        told = await self._ask_raw(query_packet(SESSION_SETTINGS.encode(), capabilities))
        settings = read_text_rows(told, capabilities)
        if not place:
            return
        row_count, found_rows, schema, role, user = place[0]
        if settings:
            self._state.know_settings(
                tuple(sorted((digits(name), digits(value)) for name, value in settings)),
                None if schema is None else bytes.fromhex(digits(schema)).decode(),
                digits(role),
                bytes.fromhex(digits(user)).decode("utf-8", "surrogateescape"),
                server=self._planner.keeper.server,
                collation=collation_of(told),
            )
        await self.find(int(digits(found_rows)))
        if keeps_counts and digits(row_count) == "0":
            await self.write_none()

    async def _may_look_back(self, command: ClientCommand) -> bool:
        if not command.whole:
            return True
        payload = command.payload
        is_query = command.code == Command.QUERY
        text = query_text(payload, self._state.capabilities) if is_query else payload[1:]
        if text is None:
            return True
        if len(text) <= ON_THE_LOOP_BYTES:
            return may_look_back(text)
        return await self._planner.reader.apart(may_look_back, text)

    def knows_rights(self) -> bool:
        """Confirms the rights that the server has just read where nobody need be asked for that;
        whether they are confirmed."""
        if self._state.rights.assumed and self._planner.confirmations.knows_rights():
            self._state.rights.confirm(self._planner.keeper.globals)
        return not self._state.rights.assumed

    async def confirm_rights(self) -> None:
        """Finds out, where the server has just read rights, whether they changed since the catalog
        was read, which other proxies tell by the root's version. Where memcached is away, they can
        wait: so do hits."""
        if self._state.rights.assumed and await self._planner.confirmations.confirms_rights():
            self._state.rights.confirm(self._planner.keeper.globals)

    async def ask(self, query: bytes) -> list[tuple[bytes | None, ...]]:
        """The rows of a query of sqlcache's own; none if the server refuses it."""
        answer = await self._ask_raw(query_packet(query, self._state.capabilities))
        rows = read_text_rows(answer, self._state.capabilities)
        self._state.expired &= not rows
        return rows

    async def run(self, command: bytes) -> bool:
        """Sends a command of sqlcache's own whose answer is not needed, but whether it is none of
        an error."""
        ends = await self._relay.run(command, self._state.capabilities, command[HEADER_BYTES])
        self._state.answered(ends)
        return not ends or ends[-1].status is not None

    async def ping(self) -> None:
        """Lets the server know of the client; takes a ROW_COUNT() away."""
        await self.run(packet(0, bytes((Command.PING,))))

    async def open(self, view: TransactionView) -> bool:
        """Puts the server where a transaction's first hit puts its client; see `opened`."""
        capabilities = self._state.capabilities
        self._diagnostics.opened(view, self._state.status, capabilities)
        self._relay.upstream.write(query_packet(view.opening(), capabilities))
        return await self.opened()

    async def opened(self) -> bool:
        """Takes in the answer to what was sent to put it there, and whether it is no error.

        Raises: ConnectionLost where the client's transaction may have ended by that.
        """
        was_in_one = self._state.status & Status.IN_TRANS
        answer, ends = await self._relay.answer(self._state.capabilities)
        self._state.answered(ends)
        if not ends or ends[-1].status is not None:
            return True
        self._state.transaction_unsure = True
        if was_in_one:
            upstream = self._relay.upstream
            upstream.odd_answer = answer
            upstream.abort()
            raise ConnectionLost("MySQL has begun no transaction anew")
        return False

    @property
    def limited(self) -> bool:
        """Whether the server is a MariaDB that may refuse the session a query that joins much."""
        return self._diagnostics.mariadb and not self._state.runs_all_joins

    async def find(self, rows: int) -> None:
        """Has FOUND_ROWS() be this."""
        if finding := query_finding(rows, limited=self.limited):
            await self.run(query_packet(finding, self._state.capabilities))

    async def put_back(self, row_count: int, found_rows: int) -> None:
        """Has them be this again, after a query that was none of the client's and used no table;
        of a ROW_COUNT() that tells of rows written it is 0. MariaDB keeps the warnings of before,
        and MySQL has that of FOUND_ROWS() no more."""
        if (keeping := query_keeping(found_rows)) is not None:
            await self.run(query_packet(keeping, self._state.capabilities))
        else:
            await self.find(found_rows)
        if row_count >= 0:
            await self.write_none()

    async def write_none(self) -> None:
        """Has ROW_COUNT() be 0."""
        await self.run(query_packet(_WRITES_NONE, self._state.capabilities))

    async def _ask_raw(self, command: bytes) -> bytes:
        """The response to a command of sqlcache's own; the session follows what it changed."""
        code = command[HEADER_BYTES]
        answer, ends = await self._relay.ask(command, self._state.capabilities, code)
        self._state.answered(ends)
        return answer


def digits(value: bytes | None) -> str:
    """ASCII as it comes in any character set: with zeros in UTF-16 and its like."""
    return "" if value is None else value.replace(b"\0", b"").decode("utf-8", "surrogateescape")


def written_like(value: bytes | None, number: int) -> bytes:
    """A number in the character set of this value, which is one, too."""
    assert value is not None
    first = digits(value)[:1].encode()
    width = len(value) // len(digits(value))
    return b"".join(value[:width].replace(first, b"%c" % digit) for digit in b"%d" % number)
