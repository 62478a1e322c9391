"""`sqlcache healthcheck`: asks the sqlcache that has the same settings whether it is ready."""

import http.client
import json

from sqlcache.admin.client import address_of
from sqlcache.settings import HostPort, Settings

_TIMEOUT_S = 5.0


def run(settings: Settings) -> int:
    """Prints a sentence; 0 if it is ready, else 1. Raises: ConfigError without an address."""
    is_ready, sentence = _ask(address_of(settings))
    print(sentence)
    return 0 if is_ready else 1


def _ask(address: HostPort) -> tuple[bool, str]:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=_TIMEOUT_S)
    try:
        connection.request("GET", "/ready")
        answer = json.load(connection.getresponse())
        wrong = "; ".join(
            f"{part}: {why}" for part, why in (answer["problems"] | answer["warnings"]).items()
        )
        is_ready = answer["ready"] is True
    except (http.client.HTTPException, ValueError, KeyError, TypeError):
        return False, f"not ready: what answers at {address} is no sqlcache"
    except OSError as error:
        return False, f"not ready: nobody answers at {address}: {error}"
    finally:
        connection.close()
    if not is_ready:
        return False, f"not ready: {wrong}"
    return True, f"ready, but {wrong}" if wrong else "ready"
