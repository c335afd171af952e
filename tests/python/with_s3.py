#!/usr/bin/env python3
"""Runs a command beside an S3 server: moto on a free loopback port, stopped when the command ends.

usage: with_s3.py COMMAND [ARGUMENT..]

The command finds the server in AWS_ENDPOINT_URL and an empty bucket in PRORATA_TEST_BUCKET. Its exit code is passed on.
"""

import os
import subprocess
import sys

from environment import enter

BUCKET = "prorata-tests"
REGION = "us-east-1"


def main() -> int:
    if len(sys.argv) < 2:
        sys.exit("usage: with_s3.py COMMAND [ARGUMENT..]")
    enter("servers")
    credentials = {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "testtest",
        "AWS_REGION": REGION,
        "AWS_DEFAULT_REGION": REGION,
    }
    os.environ.update(credentials)

    import logging

    import boto3
    from moto.server import ThreadedMotoServer

    # One line a request is more than anybody reads.
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        endpoint = f"http://{host}:{port}"
        boto3.client("s3", endpoint_url=endpoint).create_bucket(Bucket=BUCKET)
        environment = {
            **os.environ,
            "AWS_ENDPOINT_URL": endpoint,
            "AWS_ALLOW_HTTP": "true",
            "PRORATA_TEST_BUCKET": BUCKET,
        }
        environment.pop("PRORATA_CHECKS_PYTHON", None)
        return subprocess.run(sys.argv[1:], env=environment, check=False).returncode
    finally:
        server.stop()


if __name__ == "__main__":
    sys.exit(main())
