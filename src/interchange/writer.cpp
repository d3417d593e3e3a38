#include "interchange/writer.h"

#include <fmt/format.h>

#include <set>

#include "base/errors.h"
#include "interchange/case_writer.h"
#include "interchange/output_driver.h"

namespace ssmbench {
namespace {

void write_info(hid_t file, const FileInfo& info) {
  h5::write_attribute(file, "schema", std::string(kInterchangeSchema));
  h5::write_attribute(file, "producer", info.producer);
  const auto optional = [&](const char* name, const std::string& text) {
    if (!text.empty()) h5::write_attribute(file, name, text);
  };
  optional("device", info.device);
  optional("created", info.created);
  optional("argv", info.argv);
}

}  // namespace

struct InterchangeWriter::Implementation {
  std::string path;
  TemporaryFile temporary;
  std::optional<h5::File> file;  // none once closed, by finish() or by a failure
  std::set<std::string> ids;
  bool compress;

  Implementation(const std::filesystem::path& final_path, bool compressed)
      : path(final_path.string()), temporary(final_path), compress(compressed) {}
  ~Implementation() {
    h5::keep_quiet();
    file.reset();
  }

  h5::File& opened() {
    if (!file) throw OutputError(fmt::format("{} was given up after an earlier failure", path));
    return *file;
  }

  /// Runs what writes. A failure gives the file up, and the reason to tell is the disk's where there is one.
  template <class Write>
  void writing(Write write) {
    h5::keep_quiet();
    try {
      write();
      temporary.check();
    } catch (const h5::Error& error) {
      file.reset();
      temporary.check();
      throw OutputError(fmt::format("cannot write {}: {}", path, error.what()));
    } catch (...) {
      file.reset();
      throw;
    }
  }
};

InterchangeWriter::InterchangeWriter(const std::filesystem::path& path, const FileInfo& info, bool compress)
    : implementation_(std::make_unique<Implementation>(path, compress)) {
  implementation_->writing([&] {
    implementation_->file.emplace(create_hdf5(implementation_->temporary));
    write_info(*implementation_->file, info);
    h5::create_group(*implementation_->file, "cases");
  });
}

InterchangeWriter::~InterchangeWriter() = default;

void InterchangeWriter::add_case(const CaseToWrite& the_case) {
  const CheckedCase checked = check_case(the_case);
  if (!implementation_->ids.insert(the_case.id).second)
    throw ContractError(fmt::format("case '{}' is in the file already", the_case.id));
  Implementation& self = *implementation_;
  self.writing([&] {
    const h5::Group cases(H5Gopen2(self.opened(), "cases", H5P_DEFAULT), "open group 'cases'");
    write_case(cases, the_case, checked, self.compress, self.temporary);
  });
}

void InterchangeWriter::add_cases_of(const std::filesystem::path& other) {
  Implementation& self = *implementation_;
  self.writing([&] {
    const h5::File file(H5Fopen(other.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "open " + other.string());
    const h5::Group from(H5Gopen2(file, "cases", H5P_DEFAULT), "open group 'cases'");
    const h5::Group to(H5Gopen2(self.opened(), "cases", H5P_DEFAULT), "open group 'cases'");
    for (const auto& id : h5::members(from)) {
      if (!self.ids.insert(id).second)
        throw ContractError(fmt::format("case '{}' is in the file already", id));
      h5::check(H5Ocopy(from, id.c_str(), to, id.c_str(), H5P_DEFAULT, H5P_DEFAULT), "copy case " + id);
    }
  });
}

void InterchangeWriter::finish() {
  implementation_->writing([&] {
    implementation_->opened().close("close the file");
    implementation_->file.reset();
  });
  implementation_->temporary.publish();
}

}  // namespace ssmbench
