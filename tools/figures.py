#!/usr/bin/env python3
"""Writes the tables of docs/performance.md from the figures in docs/figures.

  tools/figures.py            writes all tables
  tools/figures.py --check    names each table that is not that of its figures, and fails if any is
  tools/figures.py --import=FIGURES.json --suite=ddp [--commit=HASH] docs/figures/FILE.csv
                              takes what `bench --json=FIGURES.json` wrote: rows of the same suite,
                              case and peer are replaced, new ones are added

A table stands between two marks:

  <!-- figures docs/figures/FILE.csv steps -->
  <!-- end -->

Its kind is one of TABLES: steps, pipelines. Figures of the CSV file are shown as they are written
there, shares as percentages.
"""

import argparse
import csv
import json
import os
import re
import sys

PAGE = "docs/performance.md"
FIELDS = ("suite,case,peer,ours_ms,peer_ms,ratio,ratio_min,ratio_max,ours_mib,peer_mib,floor_ms,limit,of_limit,"
          "whole_ms,microbatching_ms,bubble_ms,imbalance_ms,rest_ms,commit,note").split(",")
MARKS = re.compile(r"(<!-- figures (\S+) (\S+) -->\n)(.*?)(<!-- end -->)", re.S)


def read_rows(path):
    with open(path, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != FIELDS:
            raise ValueError(f"{path}: the columns must be {','.join(FIELDS)}")
        rows = list(reader)
    for row in rows:
        if None in row or None in row.values():
            raise ValueError(f"{path}: a row has not {len(FIELDS)} columns: {row}")
    return rows


def write_rows(path, rows):
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, FIELDS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def ratio_text(row):
    if not row["ratio_min"]:
        return row["ratio"]
    return f'{row["ratio"]} ({row["ratio_min"]} – {row["ratio_max"]})'


def share_text(text):
    return f"{100 * float(text):.1f} %" if text else ""


def memory_text(row):
    return f'{row["ours_mib"]} / {row["peer_mib"]}' if row["ours_mib"] else ""


def floor_text(row):
    if not row["floor_ms"]:
        return ""
    return f'{row["floor_ms"]} ({100 * float(row["floor_ms"]) / float(row["ours_ms"]):.0f} %)'


def source_text(row):
    return ", ".join(text for text in (row["commit"], row["note"]) if text)


# By kind: whether a row is in it, and the columns.
TABLES = {
    "steps": (lambda row: row["suite"] != "pipeline", [
        ("suite", lambda row: row["suite"]),
        ("case", lambda row: row["case"]),
        ("peer", lambda row: row["peer"]),
        ("tandem, ms", lambda row: row["ours_ms"]),
        ("peer, ms", lambda row: row["peer_ms"]),
        ("ratio (rounds)", ratio_text),
        ("MiB a rank, tandem / peer", memory_text),
        ("lower bound, ms", floor_text),
        ("commit, note", source_text),
    ]),
    "pipelines": (lambda row: row["suite"] == "pipeline" and row["peer"] == "pipelining", [
        ("case", lambda row: row["case"]),
        ("tandem, ms", lambda row: row["ours_ms"]),
        ("peer, ms", lambda row: row["peer_ms"]),
        ("ratio (rounds)", ratio_text),
        ("limit", lambda row: share_text(row["limit"])),
        ("reached of it", lambda row: share_text(row["of_limit"])),
        ("whole", lambda row: row["whole_ms"]),
        ("microbatching", lambda row: row["microbatching_ms"]),
        ("bubble", lambda row: row["bubble_ms"]),
        ("imbalance", lambda row: row["imbalance_ms"]),
        ("rest", lambda row: row["rest_ms"]),
    ]),
}


def table_text(rows, kind):
    if kind not in TABLES:
        raise ValueError(f"no table is called {kind}; there are {', '.join(TABLES)}")
    is_shown, columns = TABLES[kind]
    shown = [row for row in rows if is_shown(row)]
    if not shown:
        return "No figures yet.\n"
    lines = [[name for name, _ in columns]] + [[text(row) for _, text in columns] for row in shown]
    written = [f"| {' | '.join(line)} |\n" for line in lines]
    return "".join([written[0], "|---" * len(columns) + "|\n", *written[1:]])


def with_tables(text):
    """The page with its tables written anew, and the marks of those that were others."""
    changed = []

    def written(match):
        table = table_text(read_rows(match[2]), match[3])
        if table != match[4]:
            changed.append(f"{match[2]} {match[3]}")
        return match[1] + table + match[5]

    return MARKS.sub(written, text), changed


def figure_text(value):
    """A number of a benchmark: three digits that count, or a whole number above 1000."""
    if value is None or value == "":
        return ""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def ratio_number(value):
    return "" if value is None else f"{value:.2f}"


def imported_rows(figures, suite, commit):
    """Rows of what a suite wrote: {TABLE: [{COLUMN: FIGURE, ...}, ...], ...}."""
    further = {}
    for table in ("efficiency", "parts", "floors"):
        for each in figures.get(table, []):
            further.setdefault(each["name"], {}).update(each)
    for each in figures.get("cases", []) + figures.get("jobs", []):
        row = dict.fromkeys(FIELDS, "")
        row.update(suite=suite, case=each["name"], peer=each.get("peer", "python"), commit=commit)
        if "ours_s" in each:  # of a whole job
            row.update(peer="python", note="a whole job")
            each = dict(each, ours_ms=1000 * each["ours_s"], peer_ms=1000 * each["peer_s"])
        for field in ("ours_ms", "peer_ms", "ours_mib", "peer_mib"):
            row[field] = figure_text(each.get(field))
        row["floor_ms"] = figure_text(further.get(each["name"], {}).get("floor_ms"))
        for field in ("ratio", "ratio_min", "ratio_max"):
            row[field] = ratio_number(each.get(field))
        if row["peer"] == "pipelining":
            found = further.get(each["name"], {})
            for field in ("limit", "of_limit"):
                row[field] = f"{found[field]:.3f}" if field in found else ""
            for field in ("whole_ms", "microbatching_ms", "bubble_ms", "imbalance_ms", "rest_ms"):
                row[field] = f"{found[field]:.1f}" if field in found else ""
        yield row


def import_figures(json_path, suite, commit, csv_path):
    with open(json_path, encoding="utf-8") as file:
        figures = json.load(file)

    def key(row):
        return row["suite"], row["case"], row["peer"]

    new = {key(row): row for row in imported_rows(figures, suite, commit)}
    if not new:
        raise ValueError(f"{json_path} has neither cases nor jobs")
    rows = [new.pop(key(row), row) for row in read_rows(csv_path)]
    write_rows(csv_path, rows + list(new.values()))


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--import", dest="json")
    parser.add_argument("--suite")
    parser.add_argument("--commit", default="")
    parser.add_argument("figures", nargs="?")
    given = parser.parse_args()
    if bool(given.json) != bool(given.figures) or (given.json and not given.suite):
        parser.error("--import takes --suite and a file of docs/figures")
    json_path, csv_path = (path and os.path.abspath(path) for path in (given.json, given.figures))
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    try:
        if json_path:
            import_figures(json_path, given.suite, given.commit, csv_path)
        with open(PAGE, encoding="utf-8") as page:
            text = page.read()
        written, changed = with_tables(text)
    except (OSError, ValueError, KeyError) as error:
        print(f"figures.py: {error}", file=sys.stderr)
        return 1
    if given.check:
        for marks in changed:
            print(f"{PAGE}: the table {marks} is not that of its figures: run tools/figures.py")
        return 1 if changed else 0
    if changed:
        with open(PAGE, "w", encoding="utf-8") as page:
            page.write(written)
    return 0


if __name__ == "__main__":
    sys.exit(main())
