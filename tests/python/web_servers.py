"""The test servers that speak HTTP: Apicurio's Schema Registry, moto for S3, Azurite for Azure Blobs."""

import base64
import hashlib
import hmac
import secrets
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path

import certificates
import environment
from processes import Server, java

# The bucket and the container.
NAME = "prorata-tests"
REGION = "us-east-1"
ACCOUNT = "prorata"

# Loopback is never behind a proxy.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(url: str, headers: dict[str, str] | None = None) -> bool:
    """Whether a server answers there, and well."""
    try:
        with DIRECT.open(urllib.request.Request(url, headers=headers or {}), timeout=5) as response:
            return response.status == 200
    except OSError:
        return False


class Registry:
    """Apicurio Registry, with its schemas in memory."""

    USER = "prorata"
    PASSWORD = "only-for-tests"

    def __init__(self, folder: Path, ports: Iterator[int], asks: bool):
        http, https, management = (next(ports) for _ in range(3))
        pem = certificates.make(folder)
        settings = {
            "QUARKUS_HTTP_HOST": "127.0.0.1",
            "QUARKUS_HTTP_PORT": str(http),
            "QUARKUS_HTTP_SSL_PORT": str(https),
            "QUARKUS_HTTP_SSL_CERTIFICATE_FILES": str(pem.server),
            "QUARKUS_HTTP_SSL_CERTIFICATE_KEY_FILES": str(pem.key),
            "QUARKUS_MANAGEMENT_HOST": "127.0.0.1",
            "QUARKUS_MANAGEMENT_PORT": str(management),
            # One line a request is more than anybody reads.
            "QUARKUS_HTTP_ACCESS_LOG_ENABLED": "false",
            # As Confluent's registry has it; Apicurio takes anything.
            "APICURIO_RULES_GLOBAL_COMPATIBILITY": "BACKWARD",
        }
        path = "apis/ccompat/v7"
        self.found = {
            "PRORATA_TEST_REGISTRY": f"http://127.0.0.1:{http}/{path}",
            "PRORATA_TEST_REGISTRY_TLS": f"https://127.0.0.1:{https}/{path}",
            "PRORATA_TEST_REGISTRY_CA": str(pem.authority),
        }
        self.headers = {}
        if asks:
            settings |= {
                "QUARKUS_HTTP_AUTH_BASIC": "true",
                "QUARKUS_HTTP_AUTH_PERMISSION_ALL_PATHS": "/apis/*",
                "QUARKUS_HTTP_AUTH_PERMISSION_ALL_POLICY": "authenticated",
                "QUARKUS_SECURITY_USERS_EMBEDDED_PLAIN_TEXT": "true",
                f"QUARKUS_SECURITY_USERS_EMBEDDED_USERS_{self.USER.upper()}": self.PASSWORD,
                f"QUARKUS_SECURITY_USERS_EMBEDDED_ROLES_{self.USER.upper()}": "sr-admin",
            }
            self.found |= {
                "PRORATA_TEST_REGISTRY_USER": self.USER,
                "PRORATA_TEST_REGISTRY_PASSWORD": self.PASSWORD,
            }
            who = base64.b64encode(f"{self.USER}:{self.PASSWORD}".encode()).decode()
            self.headers["Authorization"] = f"Basic {who}"
        program = environment.installed("registry") / "target" / "registry" / "quarkus-run.jar"
        # Compiled lightly: starting is most of its work.
        options = ["-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        self.servers = [Server("registry", folder, [*java(folder, options), "-jar", program], settings)]

    def wait(self) -> None:
        self.servers[0].wait(lambda: answers(f"{self.found['PRORATA_TEST_REGISTRY']}/subjects", self.headers))

    def environment(self) -> dict[str, str]:
        return self.found


class S3:
    """moto. It checks signatures, as S3 does, after the requests that make a user who may do everything."""

    UNSIGNED = 3

    def __init__(self, folder: Path, ports: Iterator[int]):
        port = next(ports)
        self.endpoint = f"http://127.0.0.1:{port}"
        self.credentials = {"AWS_REGION": REGION, "AWS_DEFAULT_REGION": REGION}
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", port]
        self.servers = [Server("s3", folder, command, {"INITIAL_NO_AUTH_ACTION_COUNT": str(self.UNSIGNED)})]

    def wait(self) -> None:
        self.servers[0].wait(lambda: answers(f"{self.endpoint}/moto-api/"))
        import boto3

        def client(service: str, **credentials):
            return boto3.client(service, endpoint_url=self.endpoint, region_name=REGION, **credentials)

        iam = client("iam", aws_access_key_id="nobody", aws_secret_access_key="nobody")
        iam.create_user(UserName="tests")
        everything = (
            '{"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}'
        )
        iam.put_user_policy(UserName="tests", PolicyName="everything", PolicyDocument=everything)
        key = iam.create_access_key(UserName="tests")["AccessKey"]
        self.credentials["AWS_ACCESS_KEY_ID"] = key["AccessKeyId"]
        self.credentials["AWS_SECRET_ACCESS_KEY"] = key["SecretAccessKey"]
        s3 = client("s3", aws_access_key_id=key["AccessKeyId"], aws_secret_access_key=key["SecretAccessKey"])
        s3.create_bucket(Bucket=NAME)

    def environment(self) -> dict[str, str]:
        here = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ALLOW_HTTP": "true", "PRORATA_TEST_BUCKET": NAME}
        return self.credentials | here


class Azure:
    """Azurite, with an account of this run."""

    VERSION = "2021-12-02"

    def __init__(self, folder: Path, ports: Iterator[int]):
        port = next(ports)
        self.key = secrets.token_bytes(32)
        self.address = f"http://127.0.0.1:{port}"
        program = (
            environment.installed("azurite")
            / "node_modules"
            / "azurite"
            / "dist"
            / "src"
            / "blob"
            / "main.js"
        )
        options = ["--silent", "--skipApiVersionCheck", "--disableTelemetry", "--inMemoryPersistence"]
        command = ["node", program, *options, "--blobHost", "127.0.0.1", "--blobPort", port]
        accounts = {"AZURITE_ACCOUNTS": f"{ACCOUNT}:{self.encoded_key()}"}
        self.servers = [Server("azure", folder, command, accounts)]

    def encoded_key(self) -> str:
        return base64.b64encode(self.key).decode()

    def wait(self) -> None:
        """Waits till the container can be made, and makes it."""
        self.servers[0].wait(self.create_container)

    def create_container(self) -> bool:
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": self.VERSION}
        # Verb, eleven headers that are empty here, ours, and the resource; the account is in the path twice.
        signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()))
        signed += f"/{ACCOUNT}/{ACCOUNT}/{NAME}\nrestype:container"
        signature = base64.b64encode(hmac.digest(self.key, signed.encode(), hashlib.sha256)).decode()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{signature}"
        url = f"{self.address}/{ACCOUNT}/{NAME}?restype=container"
        try:
            with DIRECT.open(
                urllib.request.Request(url, method="PUT", headers=headers), timeout=5
            ) as response:
                return response.status == 201
        except urllib.error.HTTPError as error:
            raise SystemExit(f"azure refuses to make a container: {error}: {error.read().decode()}") from None
        except OSError:
            return False

    def environment(self) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": self.encoded_key(),
            # Azurite ignores where a listing shall start (startFrom), so object_store must know that it
            # talks to Azurite.
            "AZURE_STORAGE_USE_EMULATOR": "true",
            "AZURITE_BLOB_STORAGE_URL": self.address,
            "PRORATA_TEST_AZURE": NAME,
        }
