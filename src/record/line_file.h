#pragma once

#include <cstdint>
#include <string>

namespace ssmbench {

/// A text file that grows by whole records, each of which is on disk when append() returns. "-" is stdout. A
/// new file that got none is removed again: its name would be refused the next time.
class LineFile {
 public:
  /// Throws UsageError when the file exists already or cannot be created.
  explicit LineFile(std::string path);
  /// Goes on with an existing regular file after its first `keep_bytes` bytes. Throws UsageError when it
  /// cannot be written or another process is writing it.
  LineFile(std::string path, std::uintmax_t keep_bytes);
  ~LineFile();
  LineFile(const LineFile&) = delete;
  LineFile& operator=(const LineFile&) = delete;
  LineFile(LineFile&&) = delete;
  LineFile& operator=(LineFile&&) = delete;

  /// Appends `text` and a newline. When that fails (disk full) takes the partial record off again, so that
  /// the file holds whole records only, and throws OutputError. So it does when the file has been removed:
  /// what is written to a file without a name is lost.
  void append(const std::string& text);

 private:
  void check_name() const;

  std::string path_;
  bool is_new_ = false;  ///< no device, no pipe; set while the descriptor is opened
  int descriptor_;
  bool is_named_;  ///< a regular file that was opened by its own name
  bool has_records_ = false;
};

}  // namespace ssmbench
