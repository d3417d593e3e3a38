#include "interchange/reader.h"

#include <fmt/format.h>

#include <algorithm>

#include "interchange/case_reader.h"
#include "interchange/rehearse.h"

namespace ssmbench {
namespace {

h5::File open_file(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::exists(status)) reject_file(path, "", "no such file");
  if (!std::filesystem::is_regular_file(status)) reject_file(path, "", "not a regular file");
  // Negative when the file cannot be opened at all; H5Fopen then says why.
  if (H5Fis_hdf5(path.c_str()) == 0) reject_file(path, "", "not an HDF5 file");
  h5::File file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, H5P_DEFAULT), "open the file");
  if (const auto link = h5::link_out_of(file))
    reject_file(path, "", *link + "; everything has to be in this file");
  return file;
}

FileInfo read_info(const std::string& path, hid_t file) {
  const std::string schema = require_text(path, "/", file, "schema");
  if (schema != kInterchangeSchema)
    reject_file(path, "/",
                fmt::format("the schema is '{}', this build reads '{}'", schema, kInterchangeSchema));
  const auto optional = [file](const char* name) { return h5::read_text(file, name).value_or(""); };
  return {.producer = require_text(path, "/", file, "producer"),
          .device = optional("device"),
          .created = optional("created"),
          .argv = optional("argv")};
}

std::vector<std::string> list_cases(const std::string& path, hid_t file) {
  if (h5::check(H5Lexists(file, "cases", H5P_DEFAULT), "look for the cases") == 0)
    reject_file(path, "/cases", "the group is missing");
  auto ids = h5::members(h5::open_group(file, "cases"));
  for (const auto& id : ids)  // whatever is printed about a case is in lines
    if (std::ranges::any_of(id, [](unsigned char c) { return c < 0x20 || c == 0x7F; }))
      reject_file(path, "/cases/" + id, "the id has a control character");
  return ids;
}

}  // namespace

struct InterchangeFile::Implementation {
  std::string path;
  h5::File file;
  FileInfo info;
  std::vector<std::string> ids;
  Rehearsal rehearsal;
  const std::atomic<bool>& stop;

  Implementation(const std::string& name, Rehearsal rehearsal_of_cases, const std::atomic<bool>& stop_flag)
      : path(name),
        file(open_file(name)),
        info(read_info(name, file)),
        ids(list_cases(name, file)),
        rehearsal(rehearsal_of_cases),
        stop(stop_flag) {}
};

InterchangeFile::InterchangeFile(const std::filesystem::path& path, Rehearsal rehearsal,
                                 const std::atomic<bool>& stop) {
  const std::string name = path.string();
  const auto open = [&] { return std::make_unique<Implementation>(name, rehearsal, stop); };
  if (rehearsal == Rehearsal::in_child)
    rehearse(
        name, "", [&] { reading(name, "", open); }, stop);
  implementation_ = reading(name, "", open);
}

InterchangeFile::~InterchangeFile() = default;
InterchangeFile::InterchangeFile(InterchangeFile&&) noexcept = default;
InterchangeFile& InterchangeFile::operator=(InterchangeFile&&) noexcept = default;

const FileInfo& InterchangeFile::info() const {
  return implementation_->info;
}
const std::vector<std::string>& InterchangeFile::case_ids() const {
  return implementation_->ids;
}

CaseRead InterchangeFile::read_case(const std::string& id) const {
  const Implementation& self = *implementation_;
  const std::string where = "/cases/" + id;
  if (!std::ranges::binary_search(self.ids, id)) reject_file(self.path, where, "there is no such case");
  const auto read = [&] {
    return reading(self.path, where, [&] { return CaseReader(self.path, self.file, id).read(); });
  };
  if (self.rehearsal == Rehearsal::in_child) rehearse(self.path, where, read, self.stop);
  return read();
}

}  // namespace ssmbench
