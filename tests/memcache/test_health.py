"""Whether a node is trusted, by when it was last heard of."""

from sqlcache.memcache.health import ASKS_PER_OUTAGE, Health

OUTAGE_S = 2.0
QUARANTINE_S = 4.0
TICK_S = OUTAGE_S / ASKS_PER_OUTAGE


def health(*, trusted: bool = True) -> Health:
    node = Health(0.0, outage_s=OUTAGE_S, quarantine_s=QUARANTINE_S)
    node.greet(0.0, trusted=trusted)
    node.enrolled = True
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


def test_a_node_that_is_to_be_proven_is_watched_and_not_trusted() -> None:
    node = health()
    node.unproven = True
    now = ask(node, 0, 8, answers=True)
    assert node.watches(now)
    assert not node.trusts(now)
    now = ask(node, now + TICK_S, ASKS_PER_OUTAGE, answers=False)
    assert not node.watches(now)


def test_what_was_asked_before_a_node_was_trusted_again_does_not_count() -> None:
    node = health()
    assert node.trusted_since == 0.0
    node.unproven = True
    node.prove(0.3)
    node.prove(0.4)
    assert node.trusted_since == 0.3
    node.distrust(0.5)
    node.trust(0.7)
    assert node.trusted_since == 0.7
    assert node.trusts(0.7)


def test_a_silent_node_is_distrusted_before_a_writer_goes_on_without_it() -> None:
    node = health()
    now = ask(node, TICK_S, ASKS_PER_OUTAGE, answers=False)
    assert not node.trusts(now)
    assert not node.is_out
    ask(node, now + TICK_S, 1, answers=False)
    assert node.is_out


def test_who_is_not_known_to_a_node_waits_for_it_for_twice_as_long() -> None:
    node = health()
    node.enrolled = False
    now = ask(node, TICK_S, ASKS_PER_OUTAGE + 1, answers=False)
    assert node.is_silent
    assert not node.is_out
    out_at = ask(node, now + TICK_S, ASKS_PER_OUTAGE, answers=False)
    assert node.is_out
    assert node.out_at == out_at


def test_who_was_stopped_or_lost_sight_of_a_node_may_not_be_known_to_it_any_more() -> None:
    stopped, lost = health(), health()
    stopped.asked(5 * TICK_S)
    assert not stopped.enrolled
    lost.heard(3.0, 3.0)
    assert not lost.enrolled


def test_after_a_silence_that_was_shorter_than_an_outage_no_stranger_has_gone_on() -> None:
    node = health()
    now = ask(node, TICK_S, 6, answers=False)
    node.heard(now, now)
    assert node.recovered
    assert not node.may_have_strangers(now)
    now = ask(node, now, 6, answers=False)
    node.heard(now, now)
    assert node.may_have_strangers(now + 100), "it was not trusted in between"
    node.trust(now)
    now = ask(node, now, 6, answers=False)
    node.heard(now, now)
    assert not node.may_have_strangers(now)


def test_one_that_was_late_itself_gives_strangers_the_time_to_reach_the_node() -> None:
    node = health()
    node.asked(10.0)
    node.heard(10.0, 10.0)
    assert node.may_have_strangers(10.0 + QUARANTINE_S - OUTAGE_S / 2 - 0.1)
    assert not node.may_have_strangers(10.0 + QUARANTINE_S - OUTAGE_S / 2)


def test_what_was_before_the_start_is_not_known() -> None:
    node = health(trusted=False)
    assert node.may_have_strangers(100.0)


def test_who_has_to_prove_a_node_does_not_vouch_for_it() -> None:
    node = health()
    node.unproven = node.doubted = True
    assert node.watches(0.1)
    assert not node.vouches(0.1)
    node.prove(0.2)
    assert node.vouches(0.3)


def test_a_node_that_takes_a_new_connection_is_not_out() -> None:
    node = health()
    ask(node, TICK_S, ASKS_PER_OUTAGE, answers=False)
    node.reached()
    ask(node, TICK_S, ASKS_PER_OUTAGE, answers=False)
    assert not node.is_out


def test_a_node_that_takes_connections_and_answers_nothing_is_out_in_the_end() -> None:
    node = health()
    most = int(node.longest_wait_s / TICK_S)
    now = TICK_S
    for number in range(most):
        assert node.is_lame == (number > ASKS_PER_OUTAGE)
        now = ask(node, now, 1, answers=False) + TICK_S
        node.reached()
    assert not node.is_out
    out_at = ask(node, now, 1, answers=False)
    node.reached()
    assert node.is_out
    assert node.out_at == out_at
    node.heard(out_at, out_at)
    assert not node.is_out
    assert not node.is_lame
    assert not node.trusts(out_at)


def test_one_that_was_stopped_waits_anew_for_a_node_that_takes_connections() -> None:
    node = health()
    now = ask(node, TICK_S, int(node.longest_wait_s / TICK_S), answers=False)
    node.reached()
    ask(node, now + OUTAGE_S, 1, answers=False)
    assert not node.is_out


def test_an_answer_that_was_long_on_its_way_may_hide_a_silence() -> None:
    """Of those that came while this process was late, the first was sent before it."""
    node = health()
    now = ask(node, 0, 4, answers=True)
    for asked_at in (now + TICK_S, now + 2 * TICK_S):
        node.heard(asked_at, now + OUTAGE_S)
    assert node.recovered


def test_one_that_was_late_itself_gives_others_more_time() -> None:
    silent, late = health(), health()
    now = ask(silent, TICK_S, ASKS_PER_OUTAGE, answers=False)
    silent.heard(now, now)
    late.asked(now)
    late.heard(now, now)
    assert silent.recovered
    assert late.recovered
    assert late.trusted_from > silent.trusted_from


def test_after_a_silence_it_is_quarantined_and_must_be_disowned() -> None:
    node = health()
    now = ask(node, TICK_S, ASKS_PER_OUTAGE, answers=False)
    node.heard(now, now)
    assert node.recovered
    began = now + TICK_S
    now = ask(node, began, 60, answers=True)
    assert now > began + QUARANTINE_S
    assert not node.trusts(now)
    node.recovered = False
    assert node.trusts(now)


def test_the_quarantine_is_not_cut_short() -> None:
    node = health()
    now = ask(node, TICK_S, ASKS_PER_OUTAGE, answers=False)
    node.heard(now, now)
    node.recovered = False
    now = ask(node, now + TICK_S, 4, answers=True)
    assert not node.trusts(now)


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


def test_while_its_machine_was_suspended_a_process_has_not_heard_of_the_node() -> None:
    """An answer to what was asked before is no sign of life after that."""
    node = health()
    now = ask(node, 0, 40, answers=True)
    node.was_suspended(OUTAGE_S)
    assert not node.trusts(now)
    node.heard(now - OUTAGE_S, now)
    assert node.recovered
    assert not node.watches(now)
    node.asked(now + TICK_S)
    assert not node.enrolled
