#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>

namespace ssmbench {

/// A file that is written under a temporary name and appears under its final one only when it is complete.
/// Unless published it is removed again.
class TemporaryFile {
 public:
  /// Creates it in the folder of `final_path`. Throws UsageError when something has the final name already or
  /// the folder cannot be written, OutputError when the disk is full.
  explicit TemporaryFile(std::filesystem::path final_path);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& path() const { return path_; }

  // Reading and writing never fail: the first failure is kept for check(), and later writes are dropped.
  void write(std::uint64_t offset, const void* data, std::size_t size) noexcept;
  /// Bytes past the end, and those that cannot be read, are zero.
  void read(std::uint64_t offset, void* data, std::size_t size) noexcept;
  void resize(std::uint64_t size) noexcept;
  /// One past the last byte written.
  std::uint64_t size() const { return size_; }

  /// Throws OutputError when anything failed so far.
  void check() const;
  /// Brings the file to disk and gives it its final name. Throws OutputError, or UsageError when the name has
  /// been taken meanwhile.
  void publish();

 private:
  void refuse_existing() const;
  void keep_error();

  std::filesystem::path final_path_;
  std::string path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
  int error_ = 0;  // errno of the first failure
};

}  // namespace ssmbench
