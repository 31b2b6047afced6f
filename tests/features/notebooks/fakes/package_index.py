"""A package index on loopback that serves small wheels, or answers each request with a given status."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


def wheel(name: str, version: str, requires: str = "") -> tuple[str, bytes]:
    """Return the file name and the content of a wheel with one empty module."""
    metadata = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": "",
        f"{metadata}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        + (f"Requires-Dist: {requires}\n" if requires else ""),
        f"{metadata}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{metadata}/RECORD"] = "".join(f"{path},,\n" for path in (*files, f"{metadata}/RECORD"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", content.getvalue()


@contextmanager
def serving(wheels: Mapping[str, bytes], status: int = 200) -> Iterator[str]:
    """Serve wheels by their file names, and provide the URL of the index.

    Args:
        status: the status of all answers. With another one than 200, they are empty.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rstrip("/").rpartition("/")[2].partition("#")[0]
            links = [file for file in wheels if file.partition("-")[0].replace("_", "-") == name]
            content = wheels.get(
                name, "".join(f'<a href="/{file}#{digest(file)}">{file}</a>\n' for file in links).encode()
            )
            found = status if status != 200 else 200 if name in wheels or links else 404
            self.send_response(found)
            self.send_header("Content-Type", "text/html" if links else "application/octet-stream")
            self.send_header("Content-Length", str(len(content) if found == 200 else 0))
            self.end_headers()
            if found == 200:
                self.wfile.write(content)

        def log_message(self, *arguments: object) -> None:
            pass

    def digest(file: str) -> str:
        return f"sha256={hashlib.sha256(wheels[file]).hexdigest()}"

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/simple"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
