"""Run every bench script, one after the other, and gather their figures in `figures.json`.

Large fixture boards are built once and shared. Nothing runs beside the script that is measuring. Repeat:
`make bench`.
"""

import argparse
import json
import os
import subprocess
import sys

import common
import report
from pg_contenders import ABSENT

SCRIPTS = (
    ("throughput",),
    ("throughput", "--sync", "normal"),
    ("disks",),
    ("growth",),
    ("fairness",),
    ("startup",),
    ("hook",),
    ("mcp",),
    ("reading",),
    ("dialects",),
    ("postgres",),
    ("team",),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--quick", action="store_true", help="a smoke run: each script for a few seconds")
    parser.add_argument("--out", default=common.RESULTS, metavar="DIR")
    options = parser.parse_args()
    here = os.path.dirname(os.path.abspath(__file__))

    names = []
    with common.work_folder(options.out) as folder:
        for script, *words in SCRIPTS:
            command = [sys.executable, os.path.join(here, f"{script}.py"), "--out", options.out, *words]
            command += ["--fixtures", os.path.join(folder, "fixtures")]
            command += ["--quick"] if options.quick else []
            print(f"\n== {' '.join([script, *words])}\n", flush=True)
            ended = subprocess.run(command, check=False)
            if ended.returncode == ABSENT and not os.environ.get("CI"):
                print(f"{script} is left out", flush=True)
                continue
            if ended.returncode:
                raise SystemExit(f"{script} ended with exit code {ended.returncode}")
            names.append("-".join([script, *[word for word in words if not word.startswith("--")]]))

    documents = []
    for name in names:
        with open(os.path.join(options.out, f"{name}.json"), encoding="utf-8") as file:
            documents.append(json.load(file))
    with open(os.path.join(options.out, "figures.json"), "w", encoding="utf-8") as file:
        json.dump({"benches": documents}, file, indent=1)
        file.write("\n")
    print("\n== targets\n")
    report.print_targets([entry for document in documents for entry in document["targets"]])


if __name__ == "__main__":
    main()
