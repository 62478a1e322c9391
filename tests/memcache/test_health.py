"""Whether a node is trusted, by when it was last heard of."""

from sqlcache.memcache.health import Health

OUTAGE_S = 2.0
QUARANTINE_S = 4.0


def health() -> Health:
    node = Health(0.0, outage_s=OUTAGE_S, quarantine_s=QUARANTINE_S)
    node.heard(0.0, 0.0)
    return node


def test_a_node_heard_of_often_enough_is_trusted() -> None:
    node = health()
    for second in range(20):
        node.heard(float(second), second + 0.5)
        assert node.trusts(second + 0.9)
        assert not node.is_out(second + 0.9)


def test_a_silent_node_is_distrusted_before_a_writer_goes_on_without_it() -> None:
    node = health()
    assert not node.trusts(1.1)
    assert not node.is_out(2.0)
    assert node.is_out(2.1)


def test_after_a_silence_it_is_quarantined_and_must_be_disowned() -> None:
    node = health()
    node.heard(1.5, 1.6)
    assert node.recovered
    node.heard(5.5, 5.5)
    node.recovered = False
    assert not node.trusts(5.5)
    for quarter in range(20):
        node.heard(5.5 + quarter / 4, 5.5 + quarter / 4)
    assert not node.recovered
    assert node.trusts(10.3)


def test_an_answer_counts_from_when_it_was_asked_for() -> None:
    node = health()
    node.heard(0.1, 1.9)  # the node may have answered at 0.1, and been away since
    assert not node.trusts(1.9)


def test_a_stall_of_this_process_is_a_silence_too() -> None:
    node = health()
    node.heard(0.9, 0.9)
    assert not node.trusts(6.0)
    node.heard(6.0, 6.0)
    assert not node.trusts(6.0)


def test_a_node_is_trusted_from_its_first_answer_on_however_late() -> None:
    node = Health(0.0, outage_s=OUTAGE_S, quarantine_s=QUARANTINE_S)
    assert not node.trusts(0.1)
    assert node.is_out(2.1)
    node.heard(7.0, 7.1)
    assert node.trusts(7.1)
