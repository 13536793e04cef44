"""Downloads, from a server on this machine: good files, wrong ones, cut ones, and no server at all."""

import hashlib
import http.server
import socket
import threading

import pytest

from miniflow.errors import DownloadError
from miniflow.utils.data.download import download

CONTENTS = bytes(range(256)) * 1000
SHA256 = hashlib.sha256(CONTENTS).hexdigest()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests.append(self.path)
        if self.path == "/missing":
            self.send_error(404)
            return
        self.send_response(200)
        if self.path != "/unsized":
            self.send_header("Content-Length", str(len(CONTENTS)))
        self.end_headers()
        self.wfile.write(CONTENTS[:70_000] if self.path == "/cut" else CONTENTS)

    def log_message(self, *_):
        pass


@pytest.fixture
def server():
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def closed_url():
    """An address where nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.mark.parametrize("page", ["/file", "/unsized"])
def test_good_file(server, tmp_path, capsys, page):
    path = tmp_path / "new" / "folder" / "digits.gz"
    assert download(server.url + page, path, SHA256) == path
    assert path.read_bytes() == CONTENTS
    assert [p.name for p in path.parent.iterdir()] == ["digits.gz"]
    bar = capsys.readouterr().err
    assert "digits.gz" in bar and "256k" in bar and ("100%" in bar) == (page == "/file")


def test_a_file_that_is_there_is_not_fetched_again_but_a_damaged_one_is(server, tmp_path):
    path = tmp_path / "digits.gz"
    path.write_bytes(CONTENTS)
    download(server.url + "/file", path, SHA256)
    assert server.requests == []
    path.write_bytes(CONTENTS[:-1] + b"x")
    download(server.url + "/file", path, SHA256)
    assert server.requests == ["/file"] and path.read_bytes() == CONTENTS


@pytest.mark.parametrize(
    ("page", "sha256", "message"),
    [
        ("/file", "0" * 64, f"SHA-256 {SHA256}; expected {'0' * 64}"),
        ("/cut", SHA256, "broke off: got 70000 of 256000 bytes"),
        ("/missing", SHA256, "could not fetch .*: Not Found"),
    ],
)
def test_wrong_contents_leave_the_old_file_and_nothing_else(server, tmp_path, page, sha256, message):
    path = tmp_path / "digits.gz"
    path.write_bytes(b"old")
    with pytest.raises(DownloadError, match=message):
        download(server.url + page, path, sha256)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_server(closed_url, tmp_path):
    with pytest.raises(DownloadError, match="could not fetch .*: .*refused") as caught:
        download(closed_url + "/file", tmp_path / "digits.gz", SHA256)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_silent_server_times_out(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/file"
        with pytest.raises(DownloadError, match="timed out"):
            download(url, tmp_path / "digits.gz", SHA256, timeout=0.2)


def test_a_folder_that_cannot_be_made(server, tmp_path):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DownloadError, match="could not fetch"):
        download(server.url + "/file", tmp_path / "file" / "digits.gz", SHA256)


def test_an_address_that_is_none(tmp_path):
    with pytest.raises(DownloadError, match="unknown url type"):
        download("no address", tmp_path / "digits.gz", SHA256)
