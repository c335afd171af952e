#!/usr/bin/env python3
"""Runs a command next to real servers on free loopback ports, in a temporary folder that goes away with them.

usage: servers.py [--kafka N] [--kafka-sasl] [--kafka-tls] [--registry] [--registry-auth] [--s3] [--azure]
       [--kubernetes] [--] COMMAND [ARGUMENT..]

The command's exit code is passed on. When it ends, the servers end, and so does everything it left running.
It finds them in its environment:

--kafka N        Apache Kafka, N brokers: PRORATA_TEST_KAFKA (bootstrap servers) and
                 PRORATA_TEST_KAFKA_BROKERS, a JSON file with the id, pid, port, log_dir, log and start
                 command of each broker, for tests that kill and restart one
--kafka-sasl     another listener, with PLAIN, SCRAM and unsecured OAUTHBEARER: PRORATA_TEST_KAFKA_SASL,
                 PRORATA_TEST_KAFKA_USER, PRORATA_TEST_KAFKA_PASSWORD
--kafka-tls      another listener, with TLS: PRORATA_TEST_KAFKA_TLS, PRORATA_TEST_KAFKA_CA (authority, PEM)
--registry       Apicurio's Schema Registry: PRORATA_TEST_REGISTRY, the URL of Confluent's API; with TLS,
                 PRORATA_TEST_REGISTRY_TLS and PRORATA_TEST_REGISTRY_CA
--registry-auth  it asks for a password: PRORATA_TEST_REGISTRY_USER, PRORATA_TEST_REGISTRY_PASSWORD
--s3             S3 that checks signatures: PRORATA_TEST_BUCKET, an empty bucket, and AWS_*
--azure          Azure Blob Storage: PRORATA_TEST_AZURE, an empty container, and AZURE_*
--kubernetes     Kubernetes without containers: PRORATA_TEST_KUBERNETES, its kubeconfig, and
                 PRORATA_TEST_KUBERNETES_SERVERS, a JSON file with the name, pid, command and log of each
                 server, for tests that kill and restart one
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import environment

environment.enter("servers")

import processes
from kafka_brokers import Brokers
from kubernetes import Kubernetes
from web_servers import S3, Azure, Registry

# Seconds that an interrupted command has to end by itself.
GRACE_SECONDS = 5

# What a developer's shell knows of real clouds and of other runs, and how this script came to its
# interpreter.
FOREIGN = ("AWS_", "AZURE_", "AZURITE_", "GOOGLE_", "KUBECONFIG", "PRORATA_TEST_", environment.ENTERED)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        usage=__doc__.split("\n\n")[1].removeprefix("usage: "), add_help=False, allow_abbrev=False
    )
    parser.add_argument("--kafka", type=int, default=0, choices=range(1, 6))
    options = ("--kafka-sasl", "--kafka-tls", "--registry", "--registry-auth", "--s3", "--azure")
    for option in (*options, "--kubernetes"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    found = parser.parse_args()
    if found.command[:1] == ["--"]:
        del found.command[0]
    if not found.command:
        parser.error("no command")
    if (found.kafka_sasl or found.kafka_tls) and not found.kafka:
        parser.error("--kafka-sasl and --kafka-tls need --kafka")
    if found.registry_auth and not found.registry:
        parser.error("--registry-auth needs --registry")
    return found


def start(wanted: argparse.Namespace, folder: Path) -> list:
    """Starts what is wanted, the slowest first, and waits till all is ready."""
    ports = processes.free_ports()
    started = []
    if wanted.kubernetes:
        started.append(Kubernetes(folder, ports))
    if wanted.registry:
        started.append(Registry(folder, ports, wanted.registry_auth))
    if wanted.kafka:
        listeners = {
            name for name, asked in (("SASL", wanted.kafka_sasl), ("TLS", wanted.kafka_tls)) if asked
        }
        started.append(Brokers(folder, ports, wanted.kafka, listeners))
    if wanted.s3:
        started.append(S3(folder, ports))
    if wanted.azure:
        started.append(Azure(folder, ports))
    for server in started:
        server.wait()
    return started


def run(command: list[str], started: list) -> int:
    """Runs the command in its environment; when it fails, says which servers ended before it."""
    found = {key: value for server in started for key, value in server.environment().items()}
    direct = ",".join(filter(None, [os.environ.get("NO_PROXY"), "127.0.0.1,localhost"]))
    try:
        process = subprocess.Popen(
            command, env={**os.environ, "NO_PROXY": direct, "no_proxy": direct, **found}
        )
    except OSError as error:
        print(f"{command[0]} cannot be run: {error}", file=sys.stderr)
        return 127
    try:
        code = processes.wait_for_command(process.pid)
    except BaseException:
        processes.end(process.pid, GRACE_SECONDS)
        raise
    running = processes.descendants(os.getpid())
    ended = [server for group in started for server in group.servers if server.process.pid not in running]
    if code != 0:
        for server in ended:
            print(f"{server.name} ended before the command did:\n{server.tail()}", file=sys.stderr)
    return code


def interrupt(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main() -> int:
    wanted = arguments()
    processes.adopt_orphans()
    for variable in [variable for variable in os.environ if variable.startswith(FOREIGN)]:
        del os.environ[variable]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, interrupt)
    with tempfile.TemporaryDirectory(prefix="prorata-servers-") as folder:
        try:
            return run(wanted.command, start(wanted, Path(folder)))
        finally:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_IGN)
            processes.end_all()


if __name__ == "__main__":
    sys.exit(main())
