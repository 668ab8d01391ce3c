"""A small client of Pulsar's admin REST interface, for tests.

Topics may be short (`t`), or `tenant/namespace/t`, or whole (`persistent://tenant/namespace/t`).
Namespaces are `tenant/namespace`.
"""

from __future__ import annotations

import itertools
import json
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import quote


class _Redirects(urllib.request.HTTPRedirectHandler):
    """A broker sends requests for another one's topics there (307), with method and body."""

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request:
        return urllib.request.Request(newurl, req.data, dict(req.header_items()), method=req.get_method())


# Requests go to the loopback interface: never through a proxy the user may have set for the outside world.
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Redirects())


class AdminError(Exception):
    """The broker refused a request.

    Attributes:
        status: the HTTP status; 404 for a missing topic or namespace, 409 for a conflict.
        reason: the broker's text.
    """

    def __init__(self, request: str, status: int, reason: str) -> None:
        super().__init__(f"{request}: {status} {reason}")
        self.status = status
        self.reason = reason


class Admin:
    """Requests to one broker. All methods raise AdminError on a refusal, OSError without a connection."""

    def __init__(self, url: str, *, token: str | None = None, timeout: float = 30.0) -> None:
        """Make requests to `url` (`http://host:port`), with `token` as bearer; `timeout` is in seconds."""
        self.url = url.rstrip("/")
        self._token = token
        self._timeout = timeout

    def request(self, method: str, path: str, body: object = None, *, root: str = "admin/v2") -> Any:
        """Send one request to `/ROOT/PATH`; return the JSON of the answer, its text, or None when empty.

        `body`, unless None, is sent as JSON.
        """
        headers = {"Content-Type": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        data = None if body is None else json.dumps(body).encode()
        url = f"{self.url}/{root}/{path}"
        request = urllib.request.Request(url, data=data, headers=headers, method=method)
        try:
            with _opener.open(request, timeout=self._timeout) as response:
                return _decoded(response.read())
        except urllib.error.HTTPError as error:
            with error:
                raise AdminError(f"{method} {path}", error.code, _reason(error.read())) from None

    # Brokers

    def healthy(self) -> bool:
        """Say whether the broker can write and read a message, and the namespace public/default exists."""
        try:
            health = self.request("GET", "brokers/health")
            return health == "ok" and "public/default" in self.namespaces()
        except (OSError, AdminError):
            return False

    def ready(self) -> bool:
        """Say whether the broker serves; unlike `healthy` it writes nothing."""
        try:
            return str(self.request("GET", "brokers/ready")) == "ok"
        except (OSError, AdminError):
            return False

    def version(self) -> str:
        return str(self.request("GET", "brokers/version"))

    # Namespaces

    def namespaces(self, tenant: str = "public") -> list[str]:
        return list(self.request("GET", f"namespaces/{tenant}"))

    def create_namespace(self, namespace: str) -> None:
        self.request("PUT", f"namespaces/{namespace}", {})

    def bundles(self, namespace: str) -> list[str]:
        """Return the bundles of a namespace, as ranges of hashes."""
        bounds = self.request("GET", f"namespaces/{namespace}/bundles")["boundaries"]
        return [f"{first}_{last}" for first, last in itertools.pairwise(bounds)]

    def bundle_of(self, topic: str) -> str:
        """Return the bundle of a topic without partitions, or of one partition."""
        return str(self.request("GET", f"{topic_path(topic)}/bundle", root="lookup/v2/topic"))

    def owner_of(self, topic: str) -> str:
        """Return the service URL of the broker that serves a topic; if there is none, one is chosen."""
        return str(self.request("GET", topic_path(topic), root="lookup/v2/topic")["brokerUrl"])

    def unload_bundle(self, namespace: str, bundle: str, destination: str) -> None:
        """Move a bundle to the broker `destination` (`host:port` of its web service)."""
        self.request("PUT", f"namespaces/{namespace}/{bundle}/unload?destinationBroker={destination}")

    def split_bundle(self, namespace: str, bundle: str) -> None:
        """Split a bundle into two and unload both."""
        self.request("PUT", f"namespaces/{namespace}/{bundle}/split?unload=true")

    def delete_namespace(self, namespace: str) -> None:
        """Delete a namespace; it must be empty."""
        self.request("DELETE", f"namespaces/{namespace}")

    def unload_namespace(self, namespace: str) -> None:
        """Close all topics of a namespace; clients must look them up again."""
        self.request("PUT", f"namespaces/{namespace}/unload")

    def set_deduplication(self, namespace: str, enabled: bool) -> None:
        self.request("POST", f"namespaces/{namespace}/deduplication", enabled)

    def set_retention(self, namespace: str, *, minutes: int, megabytes: int) -> None:
        """Keep acknowledged data this long and this much; -1 is without limit, 0 nothing."""
        policy = {"retentionTimeInMinutes": minutes, "retentionSizeInMB": megabytes}
        self.request("POST", f"namespaces/{namespace}/retention", policy)

    def set_backlog_quota(self, namespace: str, *, limit_bytes: int, policy: str) -> None:
        """Limit stored bytes.

        `policy` is producer_request_hold, producer_exception or consumer_backlog_eviction.
        """
        path = f"namespaces/{namespace}/backlogQuota?backlogQuotaType=destination_storage"
        self.request("POST", path, {"limitSize": limit_bytes, "policy": policy})

    def set_message_age_quota(self, namespace: str, *, limit_seconds: int, policy: str) -> None:
        """Limit how long messages stay unacknowledged; `policy` as in `set_backlog_quota`."""
        path = f"namespaces/{namespace}/backlogQuota?backlogQuotaType=message_age"
        self.request("POST", path, {"limitTime": limit_seconds, "policy": policy})

    def set_max_subscriptions(self, namespace: str, limit: int) -> None:
        """Limit the subscriptions of each topic."""
        self.request("POST", f"namespaces/{namespace}/maxSubscriptionsPerTopic", limit)

    def require_encryption(self, namespace: str) -> None:
        """Refuse producers that do not encrypt, and messages that are not encrypted."""
        self.request("POST", f"namespaces/{namespace}/encryptionRequired", True)

    def set_dispatch_rate(self, namespace: str, *, messages: int) -> None:
        """Give out no more than so many messages a second of each topic, and of each subscription."""
        rate = {"dispatchThrottlingRateInMsg": messages, "ratePeriodInSecond": 1}
        self.request("POST", f"namespaces/{namespace}/dispatchRate", rate)
        self.request("POST", f"namespaces/{namespace}/subscriptionDispatchRate", rate)

    def set_publish_rate(
        self, namespace: str, messages_per_second: int = -1, *, bytes_per_second: int = -1
    ) -> None:
        """Take no more than so much of each topic partition; -1 is no limit."""
        rate = {
            "publishThrottlingRateInMsg": messages_per_second,
            "publishThrottlingRateInByte": bytes_per_second,
        }
        self.request("POST", f"namespaces/{namespace}/publishRate", rate)

    def enforce_schemas(self, namespace: str) -> None:
        """Refuse producers without a schema on topics that have one."""
        self.request("POST", f"namespaces/{namespace}/schemaValidationEnforced", True)

    # Topics

    def set_max_message_size(self, topic: str, limit: int | None) -> None:
        """Refuse larger entries, in bytes, on all partitions of a topic, soon afterwards; None: no limit."""
        path = f"{topic_path(topic)}/maxMessageSize"
        self.request("DELETE" if limit is None else "POST", path, limit)

    def set_max_delay(self, topic: str, milliseconds: int | None) -> None:
        """Refuse later deliveries, on all partitions of a topic, soon afterwards; None: no limit."""
        path = f"{topic_path(topic)}/delayedDelivery"
        policy = {"active": True, "tickTime": 1000, "maxDeliveryDelayInMillis": milliseconds}
        self.request(*(("DELETE", path) if milliseconds is None else ("POST", path, policy)))

    def topics(self, namespace: str = "public/default") -> list[str]:
        """Return the whole names of the persistent topics, one for each partition."""
        return list(self.request("GET", f"persistent/{namespace}"))

    def create_topic(self, topic: str) -> None:
        self.request("PUT", topic_path(topic))

    def create_partitioned_topic(self, topic: str, partitions: int) -> None:
        self.request("PUT", f"{topic_path(topic)}/partitions", partitions)

    def create_held_topic(self, topic: str, partitions: int = 0) -> None:
        """Create a topic, and a subscription of it, or of each partition, that keeps all messages."""
        if not partitions:
            self.create_topic(topic)
            self.create_subscription(topic, "hold")
            return
        self.create_partitioned_topic(topic, partitions)
        for number in range(partitions):
            self.create_subscription(f"{topic}-partition-{number}", "hold")

    def grow_partitioned_topic(self, topic: str, partitions: int) -> None:
        self.request("POST", f"{topic_path(topic)}/partitions", partitions)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions, 0 for a topic without."""
        return int(self.request("GET", f"{topic_path(topic)}/partitions")["partitions"])

    def delete_topic(self, topic: str) -> None:
        """Delete a topic without partitions, or one partition, under its clients."""
        self.request("DELETE", f"{topic_path(topic)}?force=true")

    def delete_partitioned_topic(self, topic: str) -> None:
        """Delete a topic with all its partitions, under its clients."""
        self.request("DELETE", f"{topic_path(topic)}/partitions?force=true")

    def unload(self, topic: str) -> None:
        """Close a topic (all partitions of it); its clients are told and may come back at once."""
        self.request("PUT", f"{topic_path(topic)}/unload")

    def terminate(self, topic: str) -> None:
        """End a topic without partitions, or one partition: nothing more can be written to it."""
        self.request("POST", f"{topic_path(topic)}/terminate")

    def trim(self, topic: str) -> None:
        """Drop consumed ledgers beyond retention now, rather than at the broker's next check."""
        self.request("POST", f"{topic_path(topic)}/trim")

    def stats(self, topic: str) -> dict[str, Any]:
        """Return the broker's `stats` of a topic without partitions, or of one partition."""
        return dict(self.request("GET", f"{topic_path(topic)}/stats"))

    def partitioned_stats(self, topic: str) -> dict[str, Any]:
        """Return the sums over all partitions, and under `partitions` the `stats` of each."""
        return dict(self.request("GET", f"{topic_path(topic)}/partitioned-stats"))

    def internal_stats(self, topic: str) -> dict[str, Any]:
        """Return ledgers and cursors of a topic without partitions, or of one partition."""
        return dict(self.request("GET", f"{topic_path(topic)}/internalStats"))

    def expire_older(self, topic: str, *, seconds: int) -> None:
        """Acknowledge what is older, for all subscriptions and readers of a partition, as TTL does."""
        self.request("POST", f"{topic_path(topic)}/all_subscription/expireMessages/{seconds}")

    def compact(self, topic: str) -> None:
        """Begin to compact a topic; `compaction_status` tells when it has ended."""
        self.request("PUT", f"{topic_path(topic)}/compaction")

    def compaction_status(self, topic: str) -> str:
        """Return NOT_RUN, RUNNING, SUCCESS or ERROR, of the compaction that was asked for last."""
        return str(self.request("GET", f"{topic_path(topic)}/compaction")["status"])

    # Subscriptions

    def subscriptions(self, topic: str) -> list[str]:
        return list(self.request("GET", f"{topic_path(topic)}/subscriptions"))

    def durable_subscriptions(self, topic: str) -> list[str]:
        """Return those that stay: readers have others, which a process that ends may leave for a moment."""
        return [name for name, stats in self.stats(topic)["subscriptions"].items() if stats["durable"]]

    def create_subscription(self, topic: str, name: str) -> None:
        """Create a durable subscription at the earliest position."""
        earliest = {"ledgerId": -1, "entryId": -1, "partitionIndex": -1}
        self.request("PUT", f"{topic_path(topic)}/subscription/{quote(name, safe='')}", earliest)

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription under its consumers."""
        self.request("DELETE", f"{topic_path(topic)}/subscription/{quote(name, safe='')}?force=true")

    def expire_to(self, topic: str, subscription: str, ledger: int, entry: int) -> None:
        """Move a subscription over all up to this entry, as a message TTL does with what is old."""
        path = f"{topic_path(topic)}/subscription/{quote(subscription, safe='')}/expireMessages"
        self.request("POST", path, {"ledgerId": ledger, "entryId": entry, "partitionIndex": -1})

    def backlog(self, topic: str, subscription: str) -> int:
        """Return the number of entries from the acknowledged position to the end."""
        return int(self.stats(topic)["subscriptions"][subscription]["msgBacklog"])


def topic_path(topic: str) -> str:
    """Return `persistent/tenant/namespace/name` for any way to write a topic, quoted for a URL."""
    domain, separator, rest = topic.rpartition("://")
    parts = rest.split("/", 2)
    if len(parts) == 1:
        parts = ["public", "default", rest]
    return "/".join([domain if separator else "persistent", *(quote(part, safe="") for part in parts)])


def _decoded(data: bytes) -> Any:
    if not data:
        return None
    try:
        return json.loads(data)
    except ValueError:
        return data.decode()


def _reason(data: bytes) -> str:
    """Return the `reason` of the broker's JSON error, or the text as it is."""
    answer = _decoded(data)
    return str(answer.get("reason", answer)) if isinstance(answer, dict) else str(answer)
