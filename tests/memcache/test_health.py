"""Whether a node is trusted, by when it was last heard of."""

from sqlcache.memcache.health import ASKS_PER_OUTAGE, Health

OUTAGE_S = 2.0
QUARANTINE_S = 4.0
TICK_S = OUTAGE_S / ASKS_PER_OUTAGE


def health(*, trusted: bool = True) -> Health:
    node = Health(0.0, outage_s=OUTAGE_S, quarantine_s=QUARANTINE_S)
    node.greet(0.0, trusted=trusted)
    return node


def ask(node: Health, begin: float, times: int, *, answers: bool) -> float:
    """Asks so many times from then on; returns when it asked last."""
    now = begin
    for number in range(times):
        now = begin + number * TICK_S
        node.asked(now)
        if answers:
            node.heard(now, now)
    return now


def test_a_node_that_answers_is_trusted_and_never_out() -> None:
    node = health()
    now = ask(node, 0, 40, answers=True)
    assert node.trusts(now + TICK_S)
    assert not node.is_out


def test_a_silent_node_is_distrusted_before_a_writer_goes_on_without_it() -> None:
    node = health()
    now = ask(node, TICK_S, ASKS_PER_OUTAGE // 2 + 1, answers=False)
    assert not node.trusts(now)
    assert not node.is_out
    ask(node, now + TICK_S, ASKS_PER_OUTAGE // 2, answers=False)
    assert node.is_out


def test_after_a_silence_it_is_quarantined_and_must_be_disowned() -> None:
    node = health()
    node.heard(1.5, 1.6)
    assert node.recovered
    now = ask(node, 1.6, 60, answers=True)
    assert now > 1.6 + QUARANTINE_S
    assert not node.trusts(now)
    node.recovered = False
    assert node.trusts(now)


def test_the_quarantine_is_not_cut_short() -> None:
    node = health()
    node.heard(1.5, 1.6)
    node.recovered = False
    ask(node, 1.6, 4, answers=True)
    assert not node.trusts(1.6 + 4 * TICK_S)


def test_an_answer_counts_from_when_it_was_asked_for() -> None:
    node = health()
    node.heard(0.1, 1.9)  # the node may have answered at 0.1, and been away since
    assert not node.trusts(1.9)


def test_a_process_that_was_stopped_distrusts_the_node_and_still_waits_for_it() -> None:
    node = health()
    now = ask(node, 0, 4, answers=True)
    thawed = now + 10 * OUTAGE_S
    assert not node.trusts(thawed)
    node.asked(thawed)
    assert not node.is_out
    node.heard(thawed, thawed)
    assert not node.trusts(thawed)


def test_a_node_is_not_trusted_before_it_was_greeted() -> None:
    node = Health(0.0, outage_s=OUTAGE_S, quarantine_s=QUARANTINE_S)
    node.heard(0.5, 0.6)
    assert not node.trusts(0.6)
    node.greet(0.6, trusted=True)
    assert node.trusts(0.7)


def test_a_node_others_may_have_lost_sight_of_begins_in_quarantine() -> None:
    node = health(trusted=False)
    assert node.recovered
    assert not node.trusts(0.1)


def test_a_node_that_was_silent_when_the_process_started_begins_in_quarantine() -> None:
    node = Health(0.0, outage_s=OUTAGE_S, quarantine_s=QUARANTINE_S)
    now = ask(node, 0, ASKS_PER_OUTAGE, answers=False) + TICK_S
    node.heard(now, now)
    node.greet(now, trusted=True)
    assert node.recovered
    assert not node.trusts(now)
