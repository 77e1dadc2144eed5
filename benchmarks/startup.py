"""How long the light commands take, beside a bare `import torch` in the same run.

python benchmarks/startup.py [--repeat 5]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

DIGITS = Path(__file__).resolve().parents[1] / "examples" / "digits" / "digits.pt"
COMMANDS = {
    "import torch": ["-c", "import torch"],
    "isomorph --help": ["-m", "isomorph", "--help"],
    "isomorph targets": ["-m", "isomorph", "targets"],
    "isomorph inspect": ["-m", "isomorph", "inspect", str(DIGITS)],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    repeat = parser.parse_args().repeat
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(repeat):
        for name, arguments in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - start)
    bare = statistics.median(times["import torch"])
    for name, found in times.items():
        median = statistics.median(found)
        print(f"{name:18s} {median:6.3f} s  {median / bare:5.2f} of import torch")


if __name__ == "__main__":
    main()
