"""Stands between the launcher and the broker's JVM, so that the JVM never outlives the launcher.

    launcher --stdin pipe--> supervisor --parent of--> JVM

The pipe carries signal numbers, one a line, which the supervisor passes on to the JVM. When the launcher
dies, in whatever way (kill -9 included), the system closes the pipe: the supervisor kills the JVM and removes
the temporary folder. Linux's PR_SET_PDEATHSIG would do with less, but it fires when the *thread* that started
the JVM ends, it is Linux only, and nobody would remove the folder.

Run as a script: supervisor.py FOLDER_TO_REMOVE_OR_EMPTY COMMAND... It writes the JVM's process id on stdout.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading


def main(folder: str, command: list[str]) -> int:
    """Run a command; returns its exit status."""
    jvm = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr, stderr=sys.stderr)
    sys.stdout.write(f"{jvm.pid}\n")
    sys.stdout.flush()
    launcher_gone = threading.Event()
    threading.Thread(target=_obey, args=(jvm, launcher_gone), daemon=True).start()
    status = jvm.wait()
    if launcher_gone.is_set() and folder:
        shutil.rmtree(folder, ignore_errors=True)
    return status if status >= 0 else 128 - status


def _obey(jvm: subprocess.Popen[bytes], launcher_gone: threading.Event) -> None:
    for line in sys.stdin:
        jvm.send_signal(int(line))
    launcher_gone.set()
    jvm.kill()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
