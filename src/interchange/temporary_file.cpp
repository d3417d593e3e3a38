#include "interchange/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/errors.h"

namespace ssmbench {
namespace {

constexpr mode_t kReadWriteForAll = 0666;  // less the umask, as for any file a program makes

std::filesystem::path folder_of(const std::filesystem::path& path) {
  return path.has_parent_path() ? path.parent_path() : ".";
}

/// Hidden, and unique among the processes and files of this machine.
std::string temporary_name(const std::filesystem::path& final_path) {
  static std::atomic<unsigned> count{0};
  const std::string name = fmt::format(".{}.{}-{}.tmp", final_path.filename().string(), getpid(), count++);
  return (folder_of(final_path) / name).string();
}

/// A rename is on disk only once its folder is; not every file system can do that, and none needs it to be
/// correct.
void sync_folder(const std::filesystem::path& folder) {
  const int descriptor = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return;
  fsync(descriptor);
  close(descriptor);
}

}  // namespace

TemporaryFile::TemporaryFile(std::filesystem::path final_path)
    : final_path_(std::move(final_path)), path_(temporary_name(final_path_)) {
  refuse_existing();
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, kReadWriteForAll);
  if (descriptor_ >= 0) return;
  const std::string message = fmt::format("cannot create {}: {}", final_path_.string(), std::strerror(errno));
  if (errno == ENOSPC || errno == EDQUOT) throw OutputError(message);
  throw UsageError(message);
}

TemporaryFile::~TemporaryFile() {
  if (descriptor_ < 0) return;
  close(descriptor_);
  unlink(path_.c_str());
}

void TemporaryFile::write(std::uint64_t offset, const void* data, std::size_t size) noexcept {
  const auto* from = static_cast<const char*>(data);
  while (size > 0 && error_ == 0) {
    const ssize_t written = pwrite(descriptor_, from, size, static_cast<off_t>(offset));
    if (written < 0) {
      keep_error();
      continue;
    }
    from += written;
    offset += static_cast<std::uint64_t>(written);
    size -= static_cast<std::size_t>(written);
    size_ = std::max(size_, offset);
  }
}

void TemporaryFile::read(std::uint64_t offset, void* data, std::size_t size) noexcept {
  auto* into = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t got = pread(descriptor_, into, size, static_cast<off_t>(offset));
    if (got < 0) keep_error();
    if (got < 0 && error_ == 0) continue;
    if (got <= 0) break;
    into += got;
    offset += static_cast<std::uint64_t>(got);
    size -= static_cast<std::size_t>(got);
  }
  std::memset(into, 0, size);
}

void TemporaryFile::resize(std::uint64_t size) noexcept {
  if (error_ == 0 && ftruncate(descriptor_, static_cast<off_t>(size)) != 0) keep_error();
  size_ = size;
}

void TemporaryFile::check() const {
  if (error_ != 0)
    throw OutputError(fmt::format("cannot write {}: {}", final_path_.string(), std::strerror(error_)));
}

void TemporaryFile::publish() {
  if (fsync(descriptor_) != 0) keep_error();
  check();
  refuse_existing();
  if (rename(path_.c_str(), final_path_.c_str()) != 0) keep_error();
  check();
  close(std::exchange(descriptor_, -1));
  sync_folder(folder_of(final_path_));
}

void TemporaryFile::refuse_existing() const {
  std::error_code ignored;  // a path that cannot be looked at cannot be created either, which says why
  if (std::filesystem::exists(std::filesystem::symlink_status(final_path_, ignored)))
    throw UsageError(fmt::format("{} exists already; it is not overwritten", final_path_.string()));
}

void TemporaryFile::keep_error() {
  if (error_ == 0 && errno != EINTR) error_ = errno;
}

}  // namespace ssmbench
