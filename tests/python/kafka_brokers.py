"""Apache Kafka for tests: brokers that are controllers too, with whichever listeners are asked for.

Timeouts are short, so that tests of failures are short: sessions from 1 s, a dead broker is noticed after
4 s, retention is applied every second. Tests create their own topics.
"""

import base64
import json
import uuid
from collections.abc import Iterator
from pathlib import Path

import certificates
import environment
from processes import Server, java

USER = "prorata"
PASSWORD = "only-for-tests"
MEMORY = ["-Xms64m", "-Xmx512m", "-XX:+UseSerialGC"]
LOGGING = Path(__file__).resolve().parent.parent / "servers" / "kafka" / "log4j2.properties"
# The broker's own words, at the end of its start: it has joined the cluster and answers.
READY = "Kafka Server started"

COMMON = """
process.roles=broker,controller
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
auto.create.topics.enable=false
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
share.coordinator.state.topic.num.partitions=4
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=4000
broker.heartbeat.interval.ms=500
log.initial.task.delay.ms=500
log.retention.check.interval.ms=1000
log.cleaner.dedupe.buffer.size=8388608
num.network.threads=2
num.io.threads=4
"""

SECURITY = "org.apache.kafka.common.security"
SASL = f"""
listener.name.sasl.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER
listener.name.sasl.plain.sasl.jaas.config={SECURITY}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";
listener.name.sasl.scram-sha-256.sasl.jaas.config={SECURITY}.scram.ScramLoginModule required;
listener.name.sasl.scram-sha-512.sasl.jaas.config={SECURITY}.scram.ScramLoginModule required;
listener.name.sasl.oauthbearer.sasl.jaas.config={SECURITY}.oauthbearer.OAuthBearerLoginModule required;
"""

# By listener, in the order of their ports.
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "SASL": "SASL_PLAINTEXT", "TLS": "SSL"}


class Brokers:
    """A cluster."""

    def __init__(self, folder: Path, ports: Iterator[int], count: int, listeners: set[str]):
        self.folder = folder / "kafka"
        self.folder.mkdir()
        self.listeners = [name for name in PROTOCOLS if name in {"PLAINTEXT", "CONTROLLER"} | listeners]
        self.java = java(folder, [f"-Dlog4j2.configurationFile={LOGGING}"])
        self.classes = ["-cp", environment.installed("kafka") / "target" / "libs" / "*"]
        self.ids = list(range(1, count + 1))
        self.ports = {(broker, name): next(ports) for broker in self.ids for name in self.listeners}
        self.certificates = certificates.make(folder) if "TLS" in listeners else None
        for broker in self.ids:
            self.properties(broker).write_text(self.configuration(broker))
        self.format()
        program = [*self.java, *MEMORY, *self.classes, "kafka.Kafka"]
        self.servers = [
            Server(f"broker-{broker}", self.folder, [*program, self.properties(broker)])
            for broker in self.ids
        ]

    def properties(self, broker: int) -> Path:
        return self.folder / f"broker-{broker}.properties"

    def configuration(self, broker: int) -> str:
        copies = len(self.ids)
        in_sync = min(2, copies)
        addresses = {name: f"{name}://127.0.0.1:{self.ports[broker, name]}" for name in self.listeners}
        settings = {
            "node.id": broker,
            "log.dirs": self.folder / f"broker-{broker}",
            "controller.quorum.voters": ",".join(
                f"{id}@127.0.0.1:{self.ports[id, 'CONTROLLER']}" for id in self.ids
            ),
            "listeners": ",".join(addresses.values()),
            "advertised.listeners": ",".join(
                address for name, address in addresses.items() if name != "CONTROLLER"
            ),
            "listener.security.protocol.map": ",".join(
                f"{name}:{PROTOCOLS[name]}" for name in self.listeners
            ),
            "default.replication.factor": copies,
            "min.insync.replicas": in_sync,
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": in_sync,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": in_sync,
        }
        if self.certificates:
            settings["listener.name.tls.ssl.keystore.type"] = "PEM"
            settings["listener.name.tls.ssl.keystore.location"] = self.certificates.both
        sasl = SASL if "SASL" in self.listeners else ""
        return COMMON + sasl + "".join(f"{key}={value}\n" for key, value in settings.items())

    def format(self) -> None:
        """Makes the brokers' folders, and the users that brokers keep themselves."""
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # Compiled lightly: it lives for less than a second.
        tool = [*self.java, "-XX:TieredStopAtLevel=1", *self.classes, "kafka.tools.StorageTool", "format"]
        users = [f"{kind}=[name={USER},password={PASSWORD}]" for kind in ("SCRAM-SHA-256", "SCRAM-SHA-512")]
        scram = [argument for user in users if "SASL" in self.listeners for argument in ("--add-scram", user)]
        # An id may begin with a dash.
        tool.append(f"--cluster-id={cluster}")
        tools = [
            Server(f"format-{broker}", self.folder, [*tool, "-c", self.properties(broker), *scram])
            for broker in self.ids
        ]
        for server in tools:
            server.finish()

    def wait(self) -> None:
        for server in self.servers:
            server.wait(lambda: READY in server.log.read_text(errors="replace"))

    def bootstrap(self, listener: str) -> str:
        return ",".join(f"127.0.0.1:{self.ports[broker, listener]}" for broker in self.ids)

    def environment(self) -> dict[str, str]:
        """What tests find the cluster by."""
        brokers = [
            {
                "id": broker,
                "pid": server.process.pid,
                "port": self.ports[broker, "PLAINTEXT"],
                "log_dir": str(self.folder / f"broker-{broker}"),
                "log": str(server.log),
                "command": server.command,
            }
            for broker, server in zip(self.ids, self.servers, strict=True)
        ]
        listing = self.folder / "brokers.json"
        listing.write_text(json.dumps(brokers, indent=1))
        found = {
            "PRORATA_TEST_KAFKA": self.bootstrap("PLAINTEXT"),
            "PRORATA_TEST_KAFKA_BROKERS": str(listing),
        }
        if "SASL" in self.listeners:
            found["PRORATA_TEST_KAFKA_SASL"] = self.bootstrap("SASL")
            found["PRORATA_TEST_KAFKA_USER"] = USER
            found["PRORATA_TEST_KAFKA_PASSWORD"] = PASSWORD
        if self.certificates:
            found["PRORATA_TEST_KAFKA_TLS"] = self.bootstrap("TLS")
            found["PRORATA_TEST_KAFKA_CA"] = str(self.certificates.authority)
        return found
