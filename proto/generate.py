"""Generate pulsar_spark/wire/pulsar_pb2.py and its .pyi from PulsarApi.proto.

Usage: ``python proto/generate.py`` (writes the files) from anywhere; needs grpcio-tools (extra ``dev``).
"""

import importlib.resources
import re
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTO = Path(__file__).resolve().parent / "PulsarApi.proto"
TARGET = PROTO.parent.parent / "pulsar_spark" / "wire"
NAMES = ("pulsar_pb2.py", "pulsar_pb2.pyi")

# grpcio-tools ties its output to the protobuf runtime it was built with, although the code it emits (one
# serialized descriptor handed to the builder) is the same for all runtimes since 4.21. Clusters carry
# several of them, so the tie is cut; CI loads the result with each supported runtime.
_RUNTIME_CHECK = re.compile(
    r"^from google\.protobuf import runtime_version as .*\n"
    r"|^_runtime_version\.ValidateProtobufRuntimeVersion\((?:\n.*?)*?^\)\n"
    r"|^# Protobuf Python Version: .*\n"
    # Schema.Type has a value called None, which the stub may not name: a keyword is no identifier.
    r"|^ +None: .*\n",
    re.MULTILINE,
)


def generate() -> dict[str, str]:
    """Return the text of each generated file by name; raises RuntimeError when protoc refuses the file."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pulsar.proto"
        source.write_text(PROTO.read_text())
        well_known = str(importlib.resources.files("grpc_tools") / "_proto")
        arguments = ["protoc", f"-I{folder}", f"-I{well_known}"]
        arguments += [f"--python_out={folder}", f"--pyi_out={folder}", str(source)]
        if protoc.main(arguments) != 0:
            raise RuntimeError(f"protoc could not compile {PROTO.name}")
        return {name: _RUNTIME_CHECK.sub("", (Path(folder) / name).read_text()) for name in NAMES}


def main() -> int:
    """Write the generated files into the package."""
    for name, text in generate().items():
        (TARGET / name).write_text(text)
        print(f"wrote {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
