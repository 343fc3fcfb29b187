"""What a bench script hands over: a table, the kept or missed targets, one JSON file and one PNG.

The JSON names the machine, the versions, the date and the options, so that a figure can be
judged and repeated later.
"""

import json
import os
import platform
import sqlite3
import time
from importlib import metadata

import common

PACKAGES = ("dibs", "apsw", "litequeue", "huey", "persist-queue")


def table(headings, rows):
    """Rows of strings under headings, first column to the left, the others to the right."""
    cells = [tuple(headings), *[tuple(str(cell) for cell in row) for row in rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for number, row in enumerate(cells):
        line = [row[0].ljust(widths[0])] + [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join(line).rstrip())
        if number == 0:
            print("  ".join("-" * width for width in widths))


def target(name, value, limit, *, at_least=False):
    """One figure that the project promises, and whether this run keeps the promise."""
    kept = value >= limit if at_least else value <= limit
    return {"name": name, "value": round(value, 3), "limit": limit, "at_least": at_least, "kept": bool(kept)}


def print_targets(targets):
    if not targets:
        print("no targets judged: this was a smoke run, or not all contenders took part")
    for entry in targets:
        sign = ">=" if entry["at_least"] else "<="
        verdict = "kept" if entry["kept"] else "MISSED"
        print(f"{verdict:>6}  {entry['name']}: {entry['value']:g} (target {sign} {entry['limit']:g})")


def publish(name, options, figures, targets, plot):
    """Print the targets, write `name`.json and, through `plot(pyplot)`, `name`.png into the out folder."""
    if getattr(options, "sync", "full") != "full":
        name = f"{name}-{options.sync}"
    document = {
        "bench": name,
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "quick": options.quick,
        "options": {
            key: value for key, value in sorted(vars(options).items()) if key not in ("out", "fixtures", "quick")
        },
        "machine": machine(options.out),
        "figures": figures,
        # A smoke run proves nothing, so it is not judged.
        "targets": [] if options.quick else targets,
    }
    print()
    print_targets(document["targets"])
    base = os.path.join(options.out, name)
    with open(base + ".json", "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1, default=str)
        file.write("\n")
    pyplot = plot_style()
    figure = plot(pyplot)
    figure.text(0.995, 0.005, footnote(document), ha="right", va="bottom", fontsize=7, color="#777777")
    figure.savefig(base + ".png", dpi=150)
    pyplot.close(figure)
    print(f"\nwritten: {os.path.relpath(base)}.json, {os.path.relpath(base)}.png")


def machine(folder):
    """What a reader must know to compare: processor, cores, file system, versions."""
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "file_system": common.file_system(folder),
        "python": platform.python_version(),
        "sqlite": {"sqlite3 module": sqlite3.sqlite_version, "apsw": _apsw_engine()},
        "packages": {package: _version(package) for package in PACKAGES},
    }


def _apsw_engine():
    try:
        import apsw
    except ImportError:
        return "absent"
    return apsw.sqlite_lib_version()


def _version(package):
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "absent"


def _cpu_model():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


# Plots

COLOURS = {
    "dibs": "#1f6feb",
    "dibs, claim_next": "#79b8ff",
    "litequeue": "#d29922",
    "huey": "#8957e5",
    "persist-queue": "#8b949e",
    "hand-written, busy_timeout": "#d73a49",
}


BLUES = ("#79b8ff", "#1f6feb", "#0b3d91")
LIMIT = "#d73a49"


def shades(names):
    """A blue for each of three names at most, light to dark."""
    return dict(zip(names, BLUES, strict=False))


def plot_style():
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    pyplot.rcParams.update(
        {
            "figure.constrained_layout.use": True,
            "figure.constrained_layout.h_pad": 0.12,
            "font.size": 10,
            "axes.titlesize": 11,
            "axes.titlelocation": "left",
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.grid.axis": "y",
            "axes.axisbelow": True,
            "grid.color": "#e5e5e5",
            "legend.frameon": False,
        }
    )
    return pyplot


def footnote(document):
    about = document["machine"]
    parts = [about["cpu"], f"{about['cores']} cores", about["file_system"], f"Python {about['python']}"]
    parts.append(document["date"][:10])
    if document["quick"]:
        parts.append("QUICK RUN: not a measurement")
    return ", ".join(parts)


def bars(axes, groups, series, *, labels="{:,.0f}", colours=None):
    """Grouped bars: `series` maps a name to one value for each of `groups`."""
    width = 0.82 / len(series)
    for number, (name, values) in enumerate(series.items()):
        places = [place + (number - (len(series) - 1) / 2) * width for place in range(len(groups))]
        drawn = axes.bar(places, values, width * 0.94, label=name, color=(colours or COLOURS).get(name))
        axes.bar_label(drawn, [labels.format(value) for value in values], fontsize=7, padding=2)
    axes.set_xticks(range(len(groups)), groups)
