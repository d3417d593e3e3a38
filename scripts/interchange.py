"""ssmbench's HDF5 interchange files by h5py and NumPy alone, and the command line that exporters share.

An exporter reads cases/<id>/inputs, computes, and writes a file with the same cases, their inputs and reference, and
its own outputs. Outputs that the file had before are dropped: they are another producer's.
"""

import argparse
import contextlib
import dataclasses
import datetime
import fnmatch
import os
import sys
import tempfile

try:
    import h5py
    import numpy
except ImportError as missing:
    print(f"{os.path.basename(sys.argv[0])}: {missing}", file=sys.stderr)
    sys.exit(2)

SCHEMA = "ssmbench-interchange/1"
# What a tensor of each dtype is in a file. bf16 and e4m3 are their bits, which NumPy has no types for.
STORAGE = {
    "f32": numpy.float32,
    "f64": numpy.float64,
    "f16": numpy.float16,
    "bf16": numpy.uint16,
    "c64": numpy.complex64,
    "i32": numpy.int32,
    "i64": numpy.int64,
    "i16": numpy.int16,
    "i8": numpy.int8,
    "e4m3": numpy.uint8,
}
LARGEST_PLAIN_BYTES = 65536  # the format's limit for datasets in one piece

# Exit codes, as ssmbench has them.
OK, USAGE, FAILED, NOTHING = 0, 2, 4, 5


class Rejected(Exception):
    """The command line or a file is not as it has to be. One line."""


class Unsupported(Exception):
    """Why an implementation does not do a case."""


@dataclasses.dataclass
class Tensor:
    values: numpy.ndarray  # in stored order; bf16 as uint16, e4m3 as uint8
    dtype: str


@dataclasses.dataclass
class Case:
    id: str
    attributes: dict
    inputs: dict  # name -> Tensor

    def __getitem__(self, name):
        if name not in self.attributes:
            raise Rejected(f"/cases/{self.id}: the attribute '{name}' is missing")
        value = self.attributes[name]
        return value.decode() if isinstance(value, bytes) else value

    def get(self, name, default=None):
        return self[name] if name in self.attributes else default


@dataclasses.dataclass
class Outcome:
    outputs: dict  # name -> Tensor
    math: str  # the arithmetic that the outputs claim
    state_dtype: str = None  # what chunk states are stored as, for operations that have them
    timing: dict = dataclasses.field(default_factory=dict)  # attribute -> value


def one_line(error):
    return " ".join(str(error).split())[:300] or type(error).__name__


def read_case(file, case_id):
    group = file[f"cases/{case_id}"]
    if "inputs" not in group:
        raise Rejected(f"/cases/{case_id}/inputs: the group is missing")
    inputs = {}
    for name, dataset in group["inputs"].items():
        where = f"/cases/{case_id}/inputs/{name}"
        dtype = dataset.attrs.get("dtype")
        if dtype not in STORAGE:
            raise Rejected(f"{where}: unknown dtype '{dtype}'")
        values = dataset[()]
        stored = numpy.dtype(STORAGE[dtype])
        if values.dtype.newbyteorder("=") != stored:
            raise Rejected(f"{where}: the attribute 'dtype' says {dtype}, but values are {values.dtype}")
        inputs[name] = Tensor(numpy.ascontiguousarray(values, stored).reshape(values.shape), dtype)
    return Case(case_id, dict(group.attrs), inputs)


def write_outputs(group, outputs, compress):
    for name, tensor in outputs.items():
        values = numpy.asarray(tensor.values)
        if values.dtype != STORAGE[tensor.dtype]:
            raise TypeError(f"output '{name}' is {values.dtype}, and not what {tensor.dtype} is stored as")
        packed = compress and values.nbytes > LARGEST_PLAIN_BYTES
        filters = {"compression": "gzip", "compression_opts": 1, "shuffle": True} if packed else {}
        group.create_dataset(name, data=values, **filters).attrs["dtype"] = tensor.dtype


@contextlib.contextmanager
def temporary_beside(path):
    """A file's temporary name in the same folder; takes the place of `path` only when all went well."""
    folder = os.path.dirname(os.path.abspath(path))
    try:
        handle, temporary = tempfile.mkstemp(prefix=".", suffix=".tmp", dir=folder)
    except OSError as error:
        raise Rejected(f"{path}: cannot be written ({error.strerror})") from None
    os.close(handle)
    try:
        yield temporary
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary)
        raise


def copy_case(old, new, case_id):
    """Everything of a case but its outputs, and what only they have; where outputs go."""
    source = old[f"cases/{case_id}"]
    group = new.create_group(f"cases/{case_id}")
    for name, value in source.attrs.items():
        if not name.startswith("timing_"):
            group.attrs[name] = value
    for name in ("inputs", "reference"):
        if name in source:
            old.copy(source[name], group, name)
    return group, group.create_group("outputs")


def open_source(path):
    if not os.path.exists(path):
        raise Rejected(f"{path}: no such file")
    try:
        file = h5py.File(path, "r")
    except OSError as error:
        raise Rejected(f"{path}: {one_line(error)}") from None
    schema = file.attrs.get("schema")
    if schema != SCHEMA:
        raise Rejected(f"{path}: the schema is '{schema}', this script reads '{SCHEMA}'")
    if "cases" not in file:
        raise Rejected(f"{path}: /cases: the group is missing")
    return file


class Export:
    """Runs `compute(case, time)`, which returns an Outcome or raises Unsupported, on a file's cases."""

    def __init__(self, producer, device, compute, options):
        self.producer, self.device, self.compute, self.options = producer, device, compute, options
        self.done = self.skipped = self.failed = 0

    def say(self, *words):
        if not self.options.quiet:
            print(*words, flush=True)

    def run_case(self, old, group, outputs, case_id):
        try:
            outcome = self.compute(read_case(old, case_id), self.options.time)
            write_outputs(outputs, outcome.outputs, not self.options.no_compress)
        except Unsupported as reason:
            self.skipped += 1
            self.say(f"skip  {case_id}: {reason}")
            return
        except Rejected as error:
            raise Rejected(f"{self.options.file}: {error}") from None
        except Exception as error:  # a framework's: the other cases are run all the same
            self.failed += 1
            print(f"error {case_id}: {one_line(error)}", file=sys.stderr, flush=True)
            for name in list(outputs):
                del outputs[name]
            return
        self.done += 1
        group.attrs["math"] = outcome.math
        if outcome.state_dtype is not None:
            group.attrs["state_dtype"] = outcome.state_dtype
        for name, value in outcome.timing.items():
            group.attrs[f"timing_{name}"] = value
        times = "".join(f"  {name} {value:.4g}" for name, value in outcome.timing.items() if name[-3:] == "_ms")
        self.say(f"done  {case_id}: {' '.join(outcome.outputs)}{times}")

    def run(self):
        options = self.options
        target = options.output or options.file
        with open_source(options.file) as old, temporary_beside(target) as temporary:
            with h5py.File(temporary, "w") as new:
                new.attrs.update(
                    schema=SCHEMA,
                    producer=self.producer,
                    device=self.device,
                    created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                    argv=" ".join([os.path.basename(sys.argv[0]), *sys.argv[1:]]),
                )
                new.create_group("cases")
                for case_id in sorted(old["cases"]):
                    group, outputs = copy_case(old, new, case_id)
                    if fnmatch.fnmatchcase(case_id, options.case):
                        self.run_case(old, group, outputs, case_id)
        self.say(f"{self.done} done, {self.skipped} skipped, {self.failed} failed: {target}")
        if self.failed:
            return FAILED
        return OK if self.done else NOTHING


def parser(description, example):
    result = argparse.ArgumentParser(description=description, epilog=f"Example: {example}")
    result.add_argument("file", metavar="FILE", help="an interchange file (HDF5), as ssmbench dump writes it")
    result.add_argument("-o", "--output", help="the file to write; without it, FILE is replaced")
    result.add_argument("--case", default="*", metavar="GLOB", help="run only cases whose id matches")
    result.add_argument("--time", action="store_true", help="measure too, and store the times as attributes")
    result.add_argument("--no-compress", action="store_true", help="store tensors as they are")
    result.add_argument("--quiet", action="store_true", help="print errors alone")
    return result


def main(options, make):
    """`make(options)` returns (producer, device, compute), or raises Rejected. Returns the exit code."""
    try:
        producer, device, compute = make(options)
        return Export(producer, device, compute, options).run()
    except Rejected as error:
        print(f"{os.path.basename(sys.argv[0])}: {error}", file=sys.stderr)
        return USAGE
    except OSError as error:  # HDF5's, when the disk is full among others
        target = options.output or options.file
        print(f"{os.path.basename(sys.argv[0])}: {target}: {one_line(error)}", file=sys.stderr)
        return FAILED
