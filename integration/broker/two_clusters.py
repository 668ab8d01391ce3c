"""Two clusters of one broker each, which replicate a tenant's topics to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from types import TracebackType

from integration.broker.admin import Admin, AdminError
from integration.broker.standalone import StandaloneBroker
from integration.broker.waiting import wait_until
from integration.helpers.proxy import Proxy
from pulsar_spark_broker.process import TEST_JVM

TENANT = "geo"

_SETTINGS = {
    "enableReplicatedSubscriptions": "true",
    "replicatedSubscriptionsSnapshotFrequencyMillis": "200",
    # What arrives stays although no subscription of the other cluster holds it.
    "defaultRetentionTimeInMinutes": "-1",
    "defaultRetentionSizeInMB": "-1",
}


class TwoClusters:
    """The clusters `a` and `b`; a context manager that ends both.

    with TwoClusters() as clusters:
        topic = clusters.create_topic("geo/ns/t", partitions=4)
        clusters.await_replicated("a", topic)

    Args:
        settings: of both brokers.

    Attributes:
        a: broker of the cluster `a`.
        b: broker of the cluster `b`.
        links: from each cluster to the other one, what its replicator's connections go through.
    """

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        own = _SETTINGS | dict(settings or {})
        self.a, self.b = (StandaloneBroker(own | {"clusterName": name}, jvm=TEST_JVM) for name in ("a", "b"))
        self._opened = ExitStack()

    def __enter__(self) -> TwoClusters:
        with ExitStack() as opened:
            with ThreadPoolExecutor(2) as side_by_side:
                for started in [side_by_side.submit(each.__enter__) for each in (self.a, self.b)]:
                    started.result()
            opened.callback(self.a.close)
            opened.callback(self.b.close)
            self.links = {
                name: opened.enter_context(Proxy(there.service_url))
                for name, there in (("a", self.b), ("b", self.a))
            }
            for here, there in ("ab", "ba"):
                urls = {
                    "serviceUrl": self.broker(there).admin_url,
                    "brokerServiceUrl": self.links[here].service_url,
                }
                self.admin(here).request("PUT", f"clusters/{there}", urls)
                self.admin(here).request(
                    "PUT", f"tenants/{TENANT}", {"allowedClusters": ["a", "b"], "adminRoles": []}
                )
            self._opened = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._opened.close()

    def admin(self, cluster: str) -> Admin:
        """Admin requests to `a` or `b`."""
        return self.broker(cluster).admin

    def broker(self, cluster: str) -> StandaloneBroker:
        """The broker of `a` or `b`."""
        return self.a if cluster == "a" else self.b

    def create_namespace(self, name: str, **policies: object) -> str:
        """Create a namespace that both clusters replicate; return its full name."""
        namespace = f"{TENANT}/{name}"
        for admin in (self.a.admin, self.b.admin):
            admin.request("PUT", f"namespaces/{namespace}", {"replication_clusters": ["a", "b"], **policies})
        return namespace

    def create_topic(self, topic: str, partitions: int = 0) -> None:
        """Create a topic in both clusters; 0 partitions for a topic without."""
        for admin in (self.a.admin, self.b.admin):
            try:
                if partitions:
                    admin.create_partitioned_topic(topic, partitions)
                else:
                    admin.create_topic(topic)
            except AdminError as error:
                if error.status != HTTPStatus.CONFLICT:  # the first cluster's replicator may have created it
                    raise

    def backlog(self, cluster: str, topic: str) -> int:
        """Entries of a topic, or all its partitions, that the cluster has not copied to the other one."""
        admin = self.admin(cluster)
        try:
            stats = admin.partitioned_stats(topic) if admin.partitions(topic) else admin.stats(topic)
        except Exception:  # noqa: BLE001 - a broker that starts
            return -1
        found = stats["replication"]
        return sum(int(each["replicationBacklog"]) for each in found.values()) if found else -1

    @contextmanager
    def cut(self, cluster: str) -> Iterator[None]:
        """Let nothing that is written to a cluster arrive in the other one."""
        self.links[cluster].stall()
        try:
            yield
        finally:
            self.links[cluster].resume()

    def await_replicated(self, cluster: str, topic: str) -> None:
        """Wait until the cluster has copied all that it has of a topic."""
        wait_until(lambda: self.backlog(cluster, topic) == 0)
