"""Kubernetes without containers: etcd, API server, controllers and scheduler are real; kwok acts as every
kubelet, by the stages of `tests/servers/kubernetes/stages.yaml`."""

import json
import shutil
import ssl
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import certificates
import environment
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from processes import Server

ADMIN = "only-for-tests"
NOBODY = "without-permissions"
STAGES = environment.HERE.parent / "servers" / "kubernetes" / "stages.yaml"


class Kubernetes:
    """One cluster. Its kubeconfig has a context for each way to log in: `token`, `certificate`, `exec`; the
    user of `certificate` and that of `nobody` may do nothing."""

    def __init__(self, folder: Path, ports: Iterator[int]):
        self.folder = folder / "kubernetes"
        self.folder.mkdir()
        self.programs = environment.installed("kubernetes")
        self.ports = ports
        self.etcd, peer, secure = (next(ports) for _ in range(3))
        self.url = f"https://127.0.0.1:{secure}"
        self.pem = certificates.make(folder)
        self.authority = ssl.create_default_context(cafile=self.pem.authority)
        self.write_accounts()
        self.write_kubeconfig()
        client, peer = f"http://127.0.0.1:{self.etcd}", f"http://127.0.0.1:{peer}"
        self.servers = []
        self.start(
            "etcd",
            # Nothing outlives the run.
            *["--data-dir", "etcd", "--unsafe-no-fsync"],
            *["--listen-client-urls", client, "--advertise-client-urls", client],
            *["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer],
            *["--initial-cluster", f"default={peer}"],
        )
        self.start(
            "kube-apiserver",
            *["--etcd-servers", client, "--bind-address", "127.0.0.1", "--secure-port", secure],
            # It need not find an address of this machine that others reach.
            *["--advertise-address", "127.0.0.1", "--endpoint-reconciler-type", "none"],
            *["--service-cluster-ip-range", "10.0.0.0/24", "--authorization-mode", "RBAC"],
            *["--tls-cert-file", self.pem.server, "--tls-private-key-file", self.pem.key],
            *["--client-ca-file", self.pem.authority, "--token-auth-file", "tokens.csv"],
            *["--service-account-issuer", "https://kubernetes.default.svc"],
            *["--service-account-signing-key-file", "accounts.pem"],
            *["--service-account-key-file", "accounts.pem"],
        )

    def start(self, name: str, *arguments: object) -> None:
        self.servers.append(Server(name, self.folder, [self.programs / name, *arguments]))

    def write_accounts(self) -> None:
        """Users with tokens, and the key that signs tokens of service accounts."""
        users = [f"{ADMIN},admin,admin,system:masters", f"{NOBODY},nobody,nobody,"]
        (self.folder / "tokens.csv").write_text("\n".join(users) + "\n")
        form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        (self.folder / "accounts.pem").write_bytes(key.private_bytes(*form))
        authority = serialization.load_pem_private_key(self.pem.authority_key.read_bytes(), None)
        client = ec.generate_private_key(ec.SECP256R1())
        (self.folder / "client.pem").write_bytes(certificates.sign("certificate", client, authority, {}))
        (self.folder / "client.key").write_bytes(client.private_bytes(*form))

    def write_kubeconfig(self) -> None:
        credential = {
            "apiVersion": "client.authentication.k8s.io/v1",
            "kind": "ExecCredential",
            "status": {"token": ADMIN},
        }
        plugin = {
            "apiVersion": credential["apiVersion"],
            "command": "echo",
            "args": [json.dumps(credential)],
            "interactiveMode": "Never",
        }
        certificate = {
            "client-certificate": str(self.folder / "client.pem"),
            "client-key": str(self.folder / "client.key"),
        }
        users = {
            "token": {"token": ADMIN},
            "certificate": certificate,
            "exec": {"exec": plugin},
            "nobody": {"token": NOBODY},
        }
        cluster = {"server": self.url, "certificate-authority": str(self.pem.authority)}
        kubeconfig = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": name, "user": user} for name, user in users.items()],
            "contexts": [{"name": name, "context": {"cluster": "test", "user": name}} for name in users],
            "current-context": "token",
        }
        # JSON is YAML.
        (self.folder / "kubeconfig").write_text(json.dumps(kubeconfig, indent=1))

    def answers(self, path: str) -> bool:
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {ADMIN}"})
        try:
            with urllib.request.urlopen(request, timeout=5, context=self.authority) as response:
                return response.status == 200
        except OSError:
            return False

    def wait(self) -> None:
        """Waits for the API server, starts what needs it, and waits until pods are admitted."""
        for server in self.servers:
            server.wait(lambda: self.answers("/readyz"))
        kubeconfig = ["--kubeconfig", "kubeconfig"]
        alone = ["--bind-address", "127.0.0.1", "--leader-elect=false"]
        self.start(
            "kube-controller-manager",
            *[*kubeconfig, *alone, "--secure-port", next(self.ports)],
            *["--service-account-private-key-file", "accounts.pem", "--root-ca-file", self.pem.authority],
            # Their own limit of 20 requests a second would be what tests wait for.
            *["--kube-api-qps", "500", "--kube-api-burst", "1000"],
        )
        self.start("kube-scheduler", *kubeconfig, *alone, "--secure-port", next(self.ports))
        shutil.copy(STAGES, self.folder)
        self.start(
            "kwok",
            *[*kubeconfig, "--config", STAGES.name, "--manage-all-nodes"],
            # Without an address it listens on all of them.
            *["--node-lease-duration-seconds", "40", "--server-address", f"127.0.0.1:{next(self.ports)}"],
        )
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        self.servers[-1].wait(lambda: self.answers(account))

    def environment(self) -> dict[str, str]:
        listing = self.folder / "servers.json"
        entries = []
        for server in self.servers:
            process = {"pid": server.process.pid, "command": server.command}
            entries.append({"name": server.name, "log": str(server.log), **process})
        listing.write_text(json.dumps(entries, indent=1))
        return {
            "PRORATA_TEST_KUBERNETES": str(self.folder / "kubeconfig"),
            "PRORATA_TEST_KUBERNETES_SERVERS": str(listing),
        }
