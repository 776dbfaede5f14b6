"""Measures the time from the start of zk-testserver to its first answer.

Argument: the limit in milliseconds. Fails if the median of several starts exceeds it.
"""

import socket
import statistics
import subprocess
import sys
import time

STARTS = 21


def start():
    begin = time.monotonic()
    server = subprocess.Popen(
        ["zk-testserver", "--exit-with-parent"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    host, port = server.stdout.readline().strip().split(":")
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(b"ruok")
        reply = connection.recv(16)
    took = time.monotonic() - begin
    assert reply == b"imok", reply
    server.communicate()
    assert server.returncode == 0, server.returncode
    return took * 1000


def main():
    limit = float(sys.argv[1])
    took = sorted(start() for _ in range(STARTS))
    median = statistics.median(took)
    assert median <= limit, f"{median:.1f} ms"
    print(f"first answer: {median:.1f} ms (median of {STARTS} starts, the slowest {took[-1]:.1f} ms)")


main()
