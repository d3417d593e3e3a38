#!/usr/bin/env python3
"""function_length.py LIMIT FOLDER...: prints FILE:LINE NAME LENGTH of each C++ or CUDA function over LIMIT lines.

Exits with 1 if there is one. The length is from the line of the body's opening brace to that of its closing one. A body is a
block after a parameter list; classes, namespaces and initializers are not, and a lambda counts with the function around it.
"""
import pathlib
import re
import sys

SUFFIXES = {".c", ".cpp", ".h", ".cu", ".cuh"}
# Comments, strings (raw ones too) and characters, and lines of the preprocessor: all that may hold a stray brace.
NO_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'|^[ \t]*#(?:\\\n|[^\n])*',
                     re.DOTALL | re.MULTILINE)
# What stands before the brace of a function: `name(parameters)`, then qualifiers, a return type or initializers of members.
HEAD = re.compile(r"([~\w]+|operator\W{1,3})\s*\([^;{}]*\)[^;{}()=]*$|\)\s*:[^;]*[)}]\s*$")
NOT_FUNCTIONS = {"if", "for", "while", "switch", "catch", "return", "namespace", "alignas", "decltype"}


def blanked(match):
    """Spaces in place of what is no code, so that offsets and lines stay."""
    return re.sub(r"[^\n]", " ", match.group())


def name_of(head):
    """The function whose head this is; None where it is none."""
    found = HEAD.search(head)
    if not found or re.search(r"\b(class|struct|union|enum|namespace)\s+[\w:<> ,]*$", head):
        return None
    name = found.group(1) or re.search(r"([~\w]+)\s*\(", head + "(").group(1)
    if "__launch_bounds__" in head:
        name = re.findall(r"(\w+)\s*\(", head.split("__launch_bounds__", 1)[1])[-1]
    return None if name in NOT_FUNCTIONS else name


def functions(text):
    """(line, name, length) of every outermost function."""
    code = NO_CODE.sub(blanked, text)
    stack, inside, start = [], None, 0
    for match in re.finditer(r"[{};]", code):
        at = match.start()
        if match.group() == "{":
            name = name_of(code[start:at].strip()) if inside is None else None
            stack.append((at, name))
            inside = inside or name
        elif match.group() == "}" and stack:
            begin, name = stack.pop()
            if name:
                first = code.count("\n", 0, begin) + 1
                yield first, name, code.count("\n", 0, at) + 2 - first
                inside = None
        if inside is None:
            start = at + 1


def main():
    limit, found = int(sys.argv[1]), False
    for folder in sys.argv[2:]:
        for path in sorted(pathlib.Path(folder).rglob("*")):
            if path.suffix in SUFFIXES:
                for line, name, length in functions(path.read_text()):
                    if length > limit:
                        print(f"{path}:{line} {name} {length}")
                        found = True
    sys.exit(found)


if __name__ == "__main__":
    main()
