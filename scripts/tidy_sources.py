#!/usr/bin/env python3
"""Prints what clang-tidy looks at, a source a line, the largest first; what it needs for that it writes to build/tidy.

The files of a folder of src or reference are looked at as one, put together from them: what a file includes takes ten
times as long as it does itself. Their names follow in the line. Implementations have names in common (registration), so
each stands for itself, and so does what Highway compiles several times, since it includes itself. Left out are what is
generated, the tests, which would take as long again, and the CUDA sources: clang 14 does not know current toolkits.
"""
import collections
import json
import pathlib
import re

TIDY = pathlib.Path("build/tidy")


def one_by_one(database):
    """The entries, with those of the files that CMake puts together to one (unity builds) in place of the latter."""
    for entry in database:
        if "/Unity/" not in entry["file"]:
            yield entry
            continue
        for file in re.findall(r'^#include "(.*)"$', pathlib.Path(entry["file"]).read_text(), re.MULTILINE):
            yield {**entry, "file": file, "command": entry["command"].replace(f"-c {entry['file']}", f"-c {file}")}


def entries():
    """How each file is compiled, by name. Tests compile some of them again, later."""
    found = {}
    for entry in one_by_one(json.loads(pathlib.Path("build/compile_commands.json").read_text())):
        file = pathlib.Path(entry["file"])
        if file.is_relative_to(pathlib.Path.cwd()):
            file = file.relative_to(pathlib.Path.cwd())
            if re.match(r"(src|kernels|reference)/.*\.cpp$", str(file)):
                # Options that clang does not know; a precompiled header, which would hide what a file does not include.
                foreign = r" -fcx-limited-range| --param=ggc-\S+| -Winvalid-pch| -include \S*/cmake_pch\.hxx"
                entry["command"] = re.sub(foreign, "", entry["command"])
                found.setdefault(file, entry)
    return found


def main():
    database = entries()
    together = collections.defaultdict(list)
    for file, entry in database.items():
        options = entry["command"].split(" -o ")[0]  # a few files have some of their own
        alone = file.parts[0] == "kernels" or "HWY_TARGET_INCLUDE" in file.read_text()
        together[file if alone else file.parent, options].append(file)

    TIDY.mkdir(exist_ok=True)
    lines = []
    for number, ((place, options), files) in enumerate(together.items()):
        size = sum(file.stat().st_size for file in files)
        if len(files) > 1:
            source = TIDY / f"{'-'.join(place.parts)}-{number}.cpp"
            source.write_text("\n".join(file.read_text() for file in files))
            database[source] = {"directory": str(pathlib.Path.cwd()), "file": str(source),
                                "command": f"{options} -c {source}"}
            files.insert(0, source)
        lines.append((size, " ".join(map(str, files))))
    (TIDY / "compile_commands.json").write_text(json.dumps(list(database.values())))
    for _, line in sorted(lines, reverse=True):
        print(line)


main()
