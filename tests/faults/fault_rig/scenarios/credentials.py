"""Clients without the right certificate or token, beside one that has both."""

from __future__ import annotations

import socket
import ssl
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import grpc
import trustme

from tests.faults.fault_rig.outcome import Outcome, settled
from tests.faults.fault_rig.sender import METHOD, Sender, requests_of
from tests.faults.fault_rig.service import Service, configuration
from tests.faults.fault_rig.traffic import body, run_of, trace_id

__all__ = ["bad_tls", "wrong_token"]

STRANGE = 10**6  # runs that must never be heard of have numbers from here
TOKEN = "correct-horse"


class _Papers:
    """An authority, what it issued to the receiver and to an honest client, and the same of another
    authority.
    """

    def __init__(self, folder: Path) -> None:
        self.authority, other = trustme.CA(), trustme.CA()
        self.server, self.client = (
            self.authority.issue_cert("127.0.0.1"),
            self.authority.issue_cert("client.example"),
        )
        self.stranger = other.issue_cert("client.example")
        self.other = other
        self.files = {
            "client_ca_file": folder / "ca.pem",
            "cert_file": folder / "server.pem",
            "key_file": folder / "server.key",
        }
        self.authority.cert_pem.write_to_path(str(self.files["client_ca_file"]))
        self.server.cert_chain_pems[0].write_to_path(str(self.files["cert_file"]))
        self.server.private_key_pem.write_to_path(str(self.files["key_file"]))

    def credentials(
        self, holder: trustme.LeafCert | None, trusts: trustme.CA | None = None
    ) -> grpc.ChannelCredentials:
        root = (trusts or self.authority).cert_pem.bytes()
        if holder is None:
            return grpc.ssl_channel_credentials(root)
        return grpc.ssl_channel_credentials(
            root, holder.private_key_pem.bytes(), holder.cert_chain_pems[0].bytes()
        )


def bad_tls(folder: Path, *, times: int, runs: int) -> Outcome:
    """No TLS at all, no certificate, one of another authority, a server that is not trusted, bytes
    that are no handshake.
    """
    papers = _Papers(folder)
    tls = {key: str(file) for key, file in papers.files.items()}
    sent = [run_of(number) for number in range(runs)]
    strange = body(run_of(STRANGE).spans())
    counts: Counter[str] = Counter()
    config = configuration(folder, protocol={"tls": tls})
    with Service(config) as service:
        credentials = papers.credentials(papers.client)
        sender = Sender(
            sent,
            lambda: (service.grpc, service.http),
            channel=lambda to, options: grpc.secure_channel(to, credentials, options),
        )
        load = threading.Thread(
            target=sender.send,
            args=(requests_of(sent, at_once=2),),
            kwargs={"within_s": 60, "threads": 2},
        )
        load.start()
        ways: tuple[Callable[[], None], ...] = (
            lambda: _call(grpc.insecure_channel(service.grpc), strange),
            lambda: _call(grpc.secure_channel(service.grpc, papers.credentials(None)), strange),
            lambda: _call(
                grpc.secure_channel(service.grpc, papers.credentials(papers.stranger)), strange
            ),
            lambda: _call(
                grpc.secure_channel(service.grpc, papers.credentials(papers.client, papers.other)),
                strange,
            ),
            lambda: _post(service.http, strange, None),
            lambda: _post(service.http, strange, _context(papers, None)),
            lambda: _post(service.http, strange, _context(papers, papers.stranger)),
            lambda: _noise(service.http),
            lambda: _noise(service.grpc),
        )
        for _ in range(times):
            for way in ways:
                counts[_refusal(way)] += 1
        load.join()
        assert len(sender.acknowledged) == runs, sender.answers
        books = settled(service, sent, sender, within_s=30)
    assert trace_id(STRANGE).hex() not in service.results.read_text(), (
        "a span without valid credentials was accepted"
    )
    assert "Traceback" not in "\n".join(service.said())
    figures = f"each was rejected ({', '.join(sorted(counts))}); none was accepted"
    return Outcome(
        f"mTLS: {len(ways)} ways to connect without the right certificate",
        times * len(ways),
        books,
        figures,
    )


def wrong_token(folder: Path, *, times: int, runs: int) -> Outcome:
    """No token, a wrong one, a part of the right one, another scheme."""
    (folder / "tokens").write_text(f"{TOKEN}\n")
    sent = [run_of(number) for number in range(runs)]
    strange = body(run_of(STRANGE).spans())
    counts: Counter[str] = Counter()
    config = configuration(folder, receiver={"auth": {"token_files": [str(folder / "tokens")]}})
    wrong = (
        None,
        "Bearer",
        "Bearer wrong",
        f"Bearer {TOKEN[:-1]}",
        f"Basic {TOKEN}",
        f"Bearer {TOKEN}x",
        TOKEN,
    )
    with Service(config) as service:
        sender = Sender(sent, lambda: (service.grpc, service.http), token=TOKEN)
        load = threading.Thread(
            target=sender.send,
            args=(requests_of(sent, at_once=2),),
            kwargs={"within_s": 60, "threads": 2},
        )
        load.start()
        for _ in range(times):
            for value in wrong:
                metadata = () if value is None else (("authorization", value),)
                counts[
                    _refusal(
                        lambda metadata=metadata: _call(
                            grpc.insecure_channel(service.grpc), strange, metadata
                        )
                    )
                ] += 1
                counts[_refusal(lambda value=value: _post(service.http, strange, None, value))] += 1
        load.join()
        assert len(sender.acknowledged) == runs, sender.answers
        books = settled(service, sent, sender, within_s=30)
    assert set(counts) == {"UNAUTHENTICATED", "401"}, counts
    assert trace_id(STRANGE).hex() not in service.results.read_text(), (
        "a span without valid credentials was accepted"
    )
    assert TOKEN not in "\n".join(service.said())
    return Outcome(
        f"{len(wrong)} wrong tokens on both protocols",
        sum(counts.values()),
        books,
        "answers: 401, UNAUTHENTICATED; none was accepted",
    )


def _refusal(way: Callable[[], None]) -> str:
    """How a client without valid credentials was refused."""
    try:
        way()
    except grpc.RpcError as error:
        return str(error.code().name)
    except ssl.SSLError:
        return "TLS alert"
    except OSError:
        return "connection closed"
    except _Refused as error:
        return str(error)
    raise AssertionError("a client without valid credentials was accepted")


class _Refused(Exception):
    """An HTTP status that is no success."""


def _call(channel: grpc.Channel, data: bytes, metadata: tuple[tuple[str, str], ...] = ()) -> None:
    with channel:
        channel.unary_unary(METHOD)(data, timeout=5, metadata=metadata)


def _context(papers: _Papers, holder: trustme.LeafCert | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    papers.authority.configure_trust(context)
    if holder is not None:
        holder.configure_cert(context)
    return context


def _post(
    place: str, data: bytes, context: ssl.SSLContext | None, token: str | None = None
) -> None:
    """By hand, since what comes back may be no HTTP."""
    host, port = place.rsplit(":", 1)
    plain = socket.create_connection((host, int(port)), timeout=5)
    with context.wrap_socket(plain, server_hostname=host) if context else plain as connection:
        line = f"Authorization: {token}\r\n" if token is not None else ""
        head = (
            f"POST /v1/traces HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-protobuf\r\n{line}"
        )
        head += f"Content-Length: {len(data)}\r\n\r\n"
        connection.sendall(head.encode() + data)
        answer = connection.recv(65536)
    if not answer.startswith(b"HTTP/1.1 "):
        raise ConnectionError("no HTTP answer")
    if not answer.startswith(b"HTTP/1.1 200"):
        raise _Refused(answer.split()[1].decode())


def _noise(place: str) -> None:
    host, port = place.rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=5) as connection:
        connection.sendall(bytes(range(256)) * 16)
        if not connection.recv(65536).startswith(b"HTTP"):
            raise ConnectionError("closed, or an alert")
