"""Tests read with the C++ client in one way, which waits for what a broker may never answer."""

from pathlib import Path

INTEGRATION = Path(__file__).resolve().parents[2] / "integration"


def test_one_module_asks_the_cpp_client_for_the_end_of_a_topic():
    """The first request may stay without an answer while the broker restores a topic's transactions."""
    asking = [
        str(path.relative_to(INTEGRATION))
        for path in INTEGRATION.rglob("*.py")
        if "has_message_available" in path.read_text()
    ]
    assert asking == ["helpers/peer.py"]
