"""Ranks on several machines, each of which runs the launcher: they meet at that of node 0.

Node 0 runs MPICH's mpiexec with `-launcher manual`: it starts no processes elsewhere, but prints a command for each
machine, of the proxy that starts the ranks there and connects to mpiexec. Node 0 sends each launcher its command over
the TCP connection that this one has opened, and at the end the exit status. What ranks print appears at node 0.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from miniflow.distributed import output

START = 'eval "$MINIFLOW_RANK"'  # each machine has its own command in its environment
SECONDS_TO_END = 2.0  # for mpiexec, after the proxy of a machine has


def limit() -> float:
    """Seconds to wait for the other launchers."""
    return float(os.environ.get("MINIFLOW_TIMEOUT_SECONDS", "300"))


def proxy(mpiexec: str, arguments: list[str], environment: dict[str, str]) -> subprocess.Popen:
    """Start the proxy of this machine."""
    return subprocess.Popen([str(Path(mpiexec).resolve().with_name("hydra_pmi_proxy")), *arguments], env=environment)


def first(
    nodes: int, ranks: int, address: tuple[str, int], mpiexec: str, environment: dict[str, str], watch: Callable
) -> int:
    """What the launcher of node 0 does.

    Args:
        nodes: how many machines there are.
        ranks: of each of them.
        address: where the others find this one.
        mpiexec: the program.
        environment: of the ranks of this machine.
        watch: is called with the process that signals are for.

    Returns:
        the exit status.
    """
    streams = meet(nodes, ranks, address)
    hosts = ",".join(f"node{i}" for i in range(nodes))
    options = ["-genvnone", "-launcher", "manual", "-localhost", address[0], "-hosts", hosts, "-ppn", str(ranks)]
    process = output.start(mpiexec, *options, "-n", str(nodes * ranks), "sh", "-c", START)
    watch(process)
    commands = []
    while (line := process.stdout.readline().decode()).startswith("HYDRA_LAUNCH:"):
        commands.append(line.split()[2:])
    if len(commands) != nodes:
        process.kill()
        sys.exit("launch: mpiexec did not say how to start its proxies; several machines need that of MPICH")
    for node, stream in streams.items():
        tell(stream, commands[node])
    local_proxy = proxy(mpiexec, commands[0], environment)
    ends = {0: local_proxy.wait} | {node: stream.readline for node, stream in streams.items()}
    lost: list[int] = []
    for node, wait in ends.items():
        threading.Thread(target=end_without, args=(node, wait, process, lost), daemon=True).start()
    with output.in_lines(process):
        status = process.wait()
    status = 1 if lost else status
    local_proxy.wait()
    for stream in streams.values():
        with contextlib.suppress(OSError):
            tell(stream, status)
    return status


def end_without(node: int, wait: Callable, process: subprocess.Popen, lost: list[int]) -> None:
    """End all when a node has ended: its ranks together, by a failure, or its launcher.

    When a rank calls `MPI_Abort` the proxy of its machine ends, and mpiexec, which should end the others, may not.

    Args:
        node: its number.
        wait: returns when the node's proxy or its launcher has ended; the launcher says nothing else meanwhile.
        process: mpiexec.
        lost: takes the number if this had to end mpiexec.
    """
    with contextlib.suppress(OSError):
        wait()
    try:
        process.wait(SECONDS_TO_END)
    except subprocess.TimeoutExpired:
        print(f"launch: node {node} has ended, and with it all", file=sys.stderr)
        lost.append(node)
        process.terminate()


def meet(nodes: int, ranks: int, address: tuple[str, int]) -> dict[int, IO[str]]:
    """Wait for the launchers of all other nodes; by node the connection to it."""
    streams: dict[int, IO[str]] = {}
    with socket.create_server(address) as server:
        server.settimeout(limit())
        while len(streams) < nodes - 1:
            try:
                stream = server.accept()[0].makefile("rw")
            except TimeoutError:
                missing = sorted({*range(1, nodes)} - streams.keys())
                sys.exit(f"launch: node 0 has waited for {limit():g} s for nodes {missing}")
            node, *sizes = json.loads(stream.readline())
            if node in streams or sizes != [nodes, ranks]:
                tell(stream, f"node {node} is there already, or has other --nnodes and --nproc_per_node than node 0")
            else:
                streams[node] = stream
    return streams


def other(
    node: int, nodes: int, ranks: int, address: tuple[str, int], mpiexec: str, environment: dict[str, str]
) -> int:
    """What the launcher of another node does; as `first`. A signal that ends it ends all."""
    end = time.monotonic() + limit()
    while True:
        try:
            stream = socket.create_connection(address).makefile("rw")
            break
        except OSError as error:
            if time.monotonic() > end:
                sys.exit(f"launch: node {node} did not find node 0 at {address[0]}:{address[1]}: {error}")
            time.sleep(0.2)
    tell(stream, [node, nodes, ranks])
    arguments = json.loads(stream.readline() or '"node 0 is gone"')
    if isinstance(arguments, str):
        sys.exit(f"launch: {arguments}")
    status = proxy(mpiexec, arguments, environment).wait()
    tell(stream, status)
    return json.loads(stream.readline() or "1")


def tell(stream: IO[str], value: object) -> None:
    """Send one line."""
    stream.write(json.dumps(value) + "\n")
    stream.flush()
