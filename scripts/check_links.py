#!/usr/bin/env python3
"""Checks that relative links in Markdown files lead to files, and their #anchors to headings; and that sources which
comments name are in the tree.

check_links.py [ROOT] prints FILE:LINE of each link and name that does not, and exits with 1 if there is one.
"""

import functools
import pathlib
import re
import sys

LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^ *```.*?^ *```$", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`(?:[^`\n]|\n(?!\n))*`")
COMMENT = re.compile(r"^\s*//.*|\s//.*", re.MULTILINE)
SOURCE = re.compile(r"(?<![\w/.<-])[\w-]+(?:/[\w-]+)*\.(?:cpp|cuh|cu|h)\b(?!\.)")
OF_OTHERS = {"foreach_target.h"}  # Highway's


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


def files_of(root, suffixes):
    """The files of the tree, without what was built."""
    for path in sorted(root.rglob("*.*")):
        top = path.relative_to(root).parts[0]
        if path.suffix in suffixes and top != ".git" and not top.startswith("build"):
            yield path


def wrong_links(root):
    for path in files_of(root, {".md"}):
        text = without(CODE, prose(path))
        for link in LINK.finditer(text):
            if what := complaint(path, link[1]):
                yield path, text.count("\n", 0, link.end()) + 1, f"{link[1]}: {what}"


def wrong_names(root):
    sources = list(files_of(root, {".cpp", ".cuh", ".cu", ".h"}))
    ends = set(OF_OTHERS)
    for path in sources:
        parts = path.relative_to(root).parts
        ends.update("/".join(parts[first:]) for first in range(len(parts)))
    for path in sources:
        text = path.read_text(encoding="utf-8")
        for comment in COMMENT.finditer(text):
            for name in SOURCE.findall(comment[0]):
                if name not in ends:
                    yield path, text.count("\n", 0, comment.end()) + 1, f"{name}: no such file"


def main(root):
    wrong = [*wrong_links(root), *wrong_names(root)]
    for path, line, what in wrong:
        print(f"{path.relative_to(root)}:{line}: {what}")
    return 1 if wrong else 0


if __name__ == "__main__":
    tree = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[1])
    sys.exit(main(tree.resolve()))
