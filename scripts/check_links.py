#!/usr/bin/env python3
"""Checks that relative links in Markdown files lead to files, and their #anchors to headings.

check_links.py [ROOT] prints FILE:LINE of each link that does not, and exits with 1 if there is one.
"""

import functools
import pathlib
import re
import sys

LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`]*`")


def prose(path):
    """(number, line) of a file, without fenced code."""
    fenced = False
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            yield number, line


@functools.cache
def anchors(path):
    """Of all headings, as GitHub makes them."""
    found = set()
    for _, line in prose(path):
        if heading := re.match(r"#+ +(.*)", line):
            words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            found.add(re.sub(r"[^\w\- ]", "", words).strip().replace(" ", "-"))
    return found


def complaint(path, target):
    """What is wrong with a link; None if nothing is."""
    if re.match(r"[a-z]+:", target):
        return None
    name, _, anchor = target.partition("#")
    file = path.parent / name if name else path
    if not file.exists():
        return "no such file"
    if anchor and file.suffix == ".md" and anchor not in anchors(file.resolve()):
        return "no such heading"
    return None


def main(root):
    wrong = 0
    for path in sorted(root.rglob("*.md")):
        if path.relative_to(root).parts[0].startswith(("build", ".git/")):
            continue
        for number, line in prose(path):
            for target in LINK.findall(CODE.sub(lambda code: "x" * len(code[0]), line)):
                if what := complaint(path, target):
                    print(f"{path.relative_to(root)}:{number}: {target}: {what}")
                    wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    sys.exit(main(tree.resolve()))
