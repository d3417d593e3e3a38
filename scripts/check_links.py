#!/usr/bin/env python3
"""Checks that relative links in Markdown files lead to files, and their #anchors to headings.

check_links.py [ROOT] prints FILE:LINE of each link that does not, and exits with 1 if there is one.
"""

import functools
import pathlib
import re
import sys

LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`(?:[^`\n]|\n(?!\n))*`")


def without(pattern, text):
    """The text with what matches left blank, so that places stay the same."""
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


@functools.cache
def prose(path):
    """The text of a file without fenced code."""
    return without(FENCED, path.read_text(encoding="utf-8"))


@functools.cache
def anchors(path):
    """Of all headings, as GitHub makes them."""
    found = set()
    for heading in re.findall(r"^#+ +(.*)", prose(path), re.MULTILINE):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
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
        top = path.relative_to(root).parts[0]
        if top == ".git" or top.startswith("build"):
            continue
        text = without(CODE, prose(path))
        for link in LINK.finditer(text):
            if what := complaint(path, link[1]):
                number = text.count("\n", 0, link.end()) + 1
                print(f"{path.relative_to(root)}:{number}: {link[1]}: {what}")
                wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    sys.exit(main(tree.resolve()))
