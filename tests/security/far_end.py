"""The other end of what hostile programs try: listens where it is told, answers all, and remembers what it heard."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator

Place = tuple[str, int]

_AT_ONCE = {True: ["nodad"], False: []}
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class FarEnd:
    """Sockets on addresses of this host. `heard` is every piece that came, with the address it came to."""

    def __init__(self, tcp: Iterable[Place], udp: Iterable[Place]) -> None:
        self.heard: list[tuple[str, str]] = []
        self._sockets: list[socket.socket] = []
        for place in tcp:
            self._serve(socket.create_server(place, family=_family(place), backlog=64), self._answer_stream)
        for place in udp:
            sock = socket.socket(_family(place), socket.SOCK_DGRAM)
            sock.bind(place)
            self._serve(sock, self._answer_datagrams)

    def has_heard(self, word: str, address: str = "") -> bool:
        return any(word in text and address in ("", at) for at, text in list(self.heard))

    def close(self) -> None:
        for sock in self._sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits there
            sock.close()

    def _serve(self, sock: socket.socket, answer: Callable[[socket.socket], None]) -> None:
        self._sockets.append(sock)
        threading.Thread(target=answer, args=(sock,), daemon=True).start()

    def _answer_stream(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=self._converse, args=(connection,), daemon=True).start()

    def _converse(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            connection.settimeout(5)
            address = str(connection.getsockname()[0])
            while data := connection.recv(65536):
                self.heard.append((address, data.decode("latin-1")))
                connection.sendall(_ANSWER)

    def _answer_datagrams(self, sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            address = str(sock.getsockname()[0])
            while True:
                data, sender = sock.recvfrom(65536)
                if sender is None:
                    return
                self.heard.append((address, data.decode("latin-1")))
                sock.sendto(b"heard", sender)


def _family(place: Place) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in place[0] else socket.AF_INET


@contextlib.contextmanager
def far_end(addresses: Iterable[str], tcp: Iterable[Place], udp: Iterable[Place]) -> Iterator[FarEnd]:
    """With these addresses on the host's loopback, for as long as it lasts."""
    given = [f"{address}/{128 if ':' in address else 32}" for address in addresses]
    for address in given:
        # Without `nodad` one of version 6 is not usable at once: the kernel looks for others who have it, when it can.
        subprocess.run(["ip", "addr", "replace", address, "dev", "lo", *_AT_ONCE[":" in address]], check=True)
    try:
        end = FarEnd(tcp, udp)
        try:
            yield end
        finally:
            end.close()
    finally:
        for address in given:
            subprocess.run(["ip", "addr", "del", address, "dev", "lo"], check=False)
