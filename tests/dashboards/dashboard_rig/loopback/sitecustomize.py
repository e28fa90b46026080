"""On PYTHONPATH of `phoenix serve`: its gRPC listener, which has no setting for the address, is
bound to loopback.
"""

import sys
from pathlib import Path

if [Path(word).name for word in sys.orig_argv[1:2]] == ["phoenix"]:
    # the class behind grpc.aio.server(): the public one is abstract
    from grpc.aio._server import Server

    _anywhere = Server.add_insecure_port
    Server.add_insecure_port = lambda self, address: _anywhere(
        self, address.replace("[::]", "127.0.0.1")
    )
