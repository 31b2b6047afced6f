"""Makes certificates for the servers of the tests."""

import subprocess
from pathlib import Path


def make(file: Path, address: str) -> Path:
    """Make a self-signed certificate for an IP address, with its key in a file with the suffix `.key`."""
    subject = ["-subj", "/CN=tests", "-addext", f"subjectAltName=IP:{address}"]
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-keyout", str(file.with_suffix(".key")), "-out", str(file)]
    subprocess.run(["openssl", "req", "-x509", "-days", "2", *subject, *key, *files], check=True, capture_output=True)
    return file
