"""A certificate authority for one run, and a certificate for servers on loopback that it signs."""

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

LIFE = timedelta(days=2)


class Certificates(NamedTuple):
    """PEM files."""

    # The authority that clients trust, and what it signs with.
    authority: Path
    authority_key: Path
    # What servers show, what they prove it with, and both in one file.
    server: Path
    key: Path
    both: Path


def make(folder: Path) -> Certificates:
    """Writes a fresh authority, and a certificate for 127.0.0.1 and localhost."""
    found = Certificates(*(folder / f"{name}.pem" for name in Certificates._fields))
    if found.both.exists():
        return found
    signer, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    signs = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    found.authority.write_bytes(
        sign("authority", signer, signer, {x509.BasicConstraints(ca=True, path_length=0): True, signs: True})
    )
    names = x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))])
    found.server.write_bytes(sign("server", key, signer, {names: False}))
    # Quarkus and Kafka read keys of this form alone.
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    found.authority_key.write_bytes(signer.private_bytes(*form))
    found.key.write_bytes(key.private_bytes(*form))
    found.both.write_bytes(found.key.read_bytes() + found.server.read_bytes())
    return found


def sign(
    name: str, key: ec.EllipticCurvePrivateKey, signer: ec.EllipticCurvePrivateKey, extensions: dict
) -> bytes:
    """A certificate of `key`; of the extensions, those that are true are critical."""
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFE)
        .not_valid_after(now + LIFE)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    for extension, critical in extensions.items():
        builder = builder.add_extension(extension, critical)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
