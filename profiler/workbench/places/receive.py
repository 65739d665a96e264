"""Takes sources on a host, by content: ``python -m workbench.places.receive``.

The first line of stdin is their sha256, a JSON list; those that are lacking are answered, and taken
from the tar behind it, where each is called after its sha256.
"""

from __future__ import annotations

import json
import sys
import tarfile

from workbench.places.carry import Store
from workbench.places.there import ANSWER
from workbench.run.cards import own_folder


def main() -> None:
    kept = Store(own_folder() / "sources")
    lacking = kept.lacks(json.loads(sys.stdin.buffer.readline()))
    print(ANSWER + json.dumps(lacking), flush=True)
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as sent:
        for member in sent:
            if (content := sent.extractfile(member)) is not None:
                kept.put({member.name: content.read()})


if __name__ == "__main__":
    main()
