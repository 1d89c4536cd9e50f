# SPDX-License-Identifier: GPL-2.0-or-later
"""A package mirror on this machine, serving tests/data/archive; apt itself is the client."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kdelta.archive import apt

DATA = Path(__file__).resolve().parent / "data" / "archive"


class Mirror:
    """The running server: what was asked of it, and how it is to misbehave."""

    def __init__(self, server: http.server.ThreadingHTTPServer, etc: Path) -> None:
        self.etc = etc
        self.requests: list[str] = []
        self.ranges: list[str] = []
        self.cut: int | None = None  # bytes after which a .deb's transfer breaks off
        self._server = server

    def stop(self) -> None:
        """Make the mirror unreachable."""
        self._server.shutdown()
        self._server.server_close()


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def __init__(self, box: list[Mirror], *arguments: object) -> None:
        self._mirror = box[0]
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        path = self.path.replace("%2b", "+").replace("%7e", "~")
        self._mirror.requests.append(path)
        file = DATA / path.removeprefix("/debian/")
        if not file.is_file() or ".." in path:
            self.send_error(404)
            return
        content, start = file.read_bytes(), 0
        if "Range" in self.headers:
            self._mirror.ranges.append(self.headers["Range"])
            start = int(self.headers["Range"].removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("Last-Modified", "Thu, 09 Oct 2025 08:53:20 GMT")
        self.end_headers()
        cut = self._mirror.cut if path.endswith(".deb") else None
        self.wfile.write(content[start:cut])
        if cut is not None:
            self.close_connection = True

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mirror]:
    """A mirror that is configured as this machine's only one, with its own keyring."""
    box: list[Mirror] = []
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Handler, box))
    etc = tmp_path / "etc"
    etc.mkdir()
    uri = f"http://127.0.0.1:{server.server_address[1]}/debian"
    (etc / "sources.list").write_text(f"deb {uri} trixie main\n")
    direct = tmp_path / "direct.conf"
    direct.write_text('Acquire::http::Proxy::127.0.0.1 "DIRECT";\n')
    monkeypatch.setenv("APT_CONFIG", str(direct))
    monkeypatch.setenv("KDELTA_APT_ETC", str(etc))
    monkeypatch.setattr(apt, "KEYRINGS", (DATA / "keyring.gpg",))
    running = Mirror(server, etc)
    box.append(running)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.005})
    thread.start()
    yield running
    running.stop()
    thread.join()
