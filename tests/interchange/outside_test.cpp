// Interchange files that refer to something outside of themselves: refused by name, and never opened. What
// they refer to is a FIFO, which would be waited for.

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>

#include "base/errors.h"
#include "catch.h"
#include "files.h"
#include "interchange/reader.h"
#include "support/host_tensors.h"
#include "support/records_of.h"
#include "support/run_command.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// A file of one case beside a FIFO, which is changed and then read.
struct Trial {
  Trial() {
    write_one_case(path, full_problem());
    REQUIRE(mkfifo(fifo.c_str(), 0600) == 0);
  }
  std::string complaint_after(const std::function<void(hid_t)>& change) const {
    change(open_for_change(path));
    const std::string message = message_of<UsageError>([&] { InterchangeFile(path).read_case("a"); });
    return message.starts_with(path + ": ") ? message.substr(path.size() + 2) : message;
  }

  TemporaryFolder folder;
  std::string path = folder / "trial.h5", fifo = folder / "fifo";
};

void link_externally(hid_t file, const std::string& path, const std::string& target) {
  if (H5Lexists(file, path.c_str(), H5P_DEFAULT) > 0) delete_link(file, path);
  h5::check(H5Lcreate_external(target.c_str(), "/u", file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT), "link");
}

void link_softly(hid_t file, const std::string& path, const std::string& target) {
  delete_link(file, path);
  h5::check(H5Lcreate_soft(target.c_str(), file, path.c_str(), H5P_DEFAULT, H5P_DEFAULT), "link");
}

/// In place of an input, with its shape, dtype and attribute.
void replace_with(hid_t file, const std::function<void(hid_t properties, hid_t space)>& set_storage) {
  const std::string path = "/cases/a/inputs/u";
  const auto inputs = specs_of(full_problem(), Role::input);
  const auto u = std::ranges::find(inputs, "u", &TensorSpec::name);
  REQUIRE(u != inputs.end());
  const Shape stored = u->stored_shape();
  const std::vector<hsize_t> shape(stored.begin(), stored.end());
  delete_link(file, path);
  const h5::DataSpace space(H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr), "space");
  const h5::PropertyList properties(H5Pcreate(H5P_DATASET_CREATE), "make properties");
  set_storage(properties, space);
  const h5::Dataset dataset(H5Dcreate2(file, path.c_str(), h5::native_type_of(u->dtype), space, H5P_DEFAULT,
                                       properties, H5P_DEFAULT),
                            "make a dataset");
  h5::write_attribute(dataset, "dtype", std::string(name_of(u->dtype)));
}

}  // namespace

TEST_CASE("external links are refused wherever they are, and not followed") {
  const char* const where = GENERATE("/cases/a/inputs/u", "/cases/a/inputs", "/cases/a", "/cases",
                                     "/cases/skipped", "/not/looked/at", "/cases/a/reference");
  const Trial trial;
  CHECK(trial.complaint_after([&](hid_t file) {
    if (std::string(where).starts_with("/not")) {
      h5::create_group(file, "not");
      h5::create_group(file, "not/looked");
    }
    link_externally(file, where, trial.fifo);
  }) == fmt::format("{} is an external link to /u of {}; everything has to be in this file", where,
                    trial.fifo));
}

TEST_CASE("a soft link out of the file is refused, one that stays in it is followed") {
  const Trial trial;
  CHECK(trial.complaint_after([&](hid_t file) {
    h5::check(H5Lmove(file, "/cases/a/inputs/u", file, "/moved", H5P_DEFAULT, H5P_DEFAULT), "move");
    h5::check(H5Lcreate_soft("/moved", file, "/cases/a/inputs/u", H5P_DEFAULT, H5P_DEFAULT), "link");
    h5::check(H5Lmove(file, "/cases/a/outputs", file, "/moved_too", H5P_DEFAULT, H5P_DEFAULT), "move");
    h5::check(H5Lcreate_soft("/./moved_too/", file, "/cases/a/outputs", H5P_DEFAULT, H5P_DEFAULT), "link");
  }) == "(nothing was thrown)");
  CHECK(InterchangeFile(trial.path).read_case("a").outputs.size() == 2);
  CHECK(trial.complaint_after([&](hid_t file) {
    link_externally(file, "/elsewhere", trial.fifo);
    link_softly(file, "/cases/a/inputs/u", "/elsewhere/u");
  }) == fmt::format("/elsewhere is an external link to /u of {}; everything has to be in this file",
                    trial.fifo));
}

TEST_CASE("links in a circle, hard and soft, end") {
  const Trial trial;
  CHECK(trial.complaint_after([](hid_t file) { link_softly(file, "/cases/a/inputs/u", "u"); }) ==
        "/cases/a/inputs/u: soft links lead to soft links without end");
  const Trial other;
  CHECK(other
            .complaint_after([](hid_t file) {
              h5::check(
                  H5Lcreate_hard(file, "/cases", file, "/cases/a/inputs/loop", H5P_DEFAULT, H5P_DEFAULT),
                  "link");
            })
            .starts_with("/cases/a/inputs/loop: "));
}

TEST_CASE("external storage is refused by the name of its file") {
  const Trial trial;
  CHECK(trial.complaint_after([&](hid_t file) {
    replace_with(file, [&](hid_t properties, hid_t /*space*/) {
      h5::check(H5Pset_external(properties, trial.fifo.c_str(), 0, H5F_UNLIMITED), "set the storage");
    });
  }) == fmt::format("/cases/a/inputs/u: has its values in {}; everything has to be in this file",
                    trial.fifo));
  const Trial system_file;
  CHECK(system_file.complaint_after([&](hid_t file) {
    replace_with(file, [&](hid_t properties, hid_t /*space*/) {
      h5::check(H5Pset_external(properties, "/etc/passwd", 0, 4096), "set the storage");
    });
  }) == "/cases/a/inputs/u: has its values in /etc/passwd; everything has to be in this file");
}

TEST_CASE("headers that claim 12 GB, or an exabyte, are one complaint at once") {
  for (const hsize_t seqlen : {hsize_t{250'000'000}, hsize_t{1} << 55}) {
    const Trial trial;
    const std::string message = trial.complaint_after([&](hid_t file) {
      for (const char* name : {"u", "delta", "z"})
        replace_dataset_unwritten(file, std::string("/cases/a/inputs/") + name, {2, 6, seqlen}, DType::f32,
                                  "f32");
      for (const char* name : {"B", "C"})
        replace_dataset_unwritten(file, std::string("/cases/a/inputs/") + name, {2, 2, 3, seqlen}, DType::f32,
                                  "f32");
    });
    INFO(message);
    CHECK(message.starts_with("/cases/a"));
    CHECK(message.find("takes more than") == message.npos);
  }
}

TEST_CASE("virtual datasets are refused") {
  const Trial trial;
  CHECK(trial.complaint_after([&](hid_t file) {
    replace_with(file, [&](hid_t properties, hid_t space) {
      h5::check(H5Pset_virtual(properties, space, trial.fifo.c_str(), "u", space), "set the storage");
    });
  }) == "/cases/a/inputs/u: is a virtual dataset, whose values are elsewhere; everything has to be in this "
        "file");
}

TEST_CASE("check: a file that refers to a FIFO is one line and exit code 2") {
  const Trial trial;
  link_externally(open_for_change(trial.path), "/cases/a/inputs/u", trial.fifo);
  const CommandResult result = run_ssmbench("check " + trial.path);
  CHECK(result.exit_code == 2);
  CHECK(result.err ==
        fmt::format("ssmbench: {}: /cases/a/inputs/u is an external link to /u of {}; everything "
                    "has to be in this file\n",
                    trial.path, trial.fifo));
  CHECK(run_ssmbench("compare " + trial.path + " " + trial.path).exit_code == 2);
}

TEST_CASE("check: ids of cases that are globs, markup, no UTF-8 or paths are names and nothing else") {
  // No id makes a file name; HDF5 takes a slash for a group in a group, which is no case.
  const Trial trial;
  const std::vector<std::string> ids{"*", "[x", "..", "a;b $(c)", "<b>&\"'", "\xff\xfe"};
  {
    const h5::File file = open_for_change(trial.path);
    for (const auto& id : ids)
      h5::check(H5Ocopy(file, "/cases/a", file, ("/cases/" + id).c_str(), H5P_DEFAULT, H5P_DEFAULT), "copy");
  }
  CHECK(InterchangeFile(trial.path).case_ids().size() == 1 + ids.size());
  const CommandResult all = run_ssmbench("check " + trial.path + " --allow-nonfinite --json -");
  INFO(all.out << all.err);
  CHECK(all.exit_code == 1);  // the bytes of the tensors are random
  const auto verdicts = records_of(all.out);
  CHECK(verdicts.size() >= 1 + ids.size());
  const CommandResult one = run_ssmbench("check " + trial.path + " --allow-nonfinite --json - --case '[[]x'");
  INFO(one.out << one.err);
  CHECK(one.out.find("\"[x\"") != std::string::npos);
  CHECK(one.out.find("\"*\"") == std::string::npos);
  {
    const h5::File file = open_for_change(trial.path);
    h5::check(H5Lmove(file, "/cases/[x", file, "/cases/a/x", H5P_DEFAULT, H5P_DEFAULT), "move");
  }
  const CommandResult nested = run_ssmbench("check " + trial.path + " --allow-nonfinite");
  CHECK(nested.exit_code == 2);
  CHECK(nested.err.find("/cases/a/x") != std::string::npos);
}
