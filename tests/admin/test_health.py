from sqlcache.admin.health import Readiness


def test_several_processes_are_ready_while_one_is() -> None:
    away, fine = Readiness({"upstream": "refused"}), Readiness({}, {"catalog": "not read"})
    assert Readiness.of_all([("worker 0", away), ("worker 1", fine)]) == Readiness(
        {}, {"worker 0 upstream": "refused", "worker 1 catalog": "not read"}
    )
    assert Readiness.of_all([("worker 0", away), ("worker 1", away)]) == Readiness(
        {"worker 0 upstream": "refused", "worker 1 upstream": "refused"}
    )
