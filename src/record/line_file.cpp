#include "record/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/errors.h"

namespace ssmbench {
namespace {

[[noreturn]] void cannot_write(const std::string& path) {
  throw UsageError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

/// One writer at a time, where the file system has locks.
void lock(int descriptor, const std::string& path) {
  if (flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  close(descriptor);
  throw UsageError(fmt::format("{}: another process is writing it", path));
}

int open_existing(const std::string& path, std::uintmax_t keep_bytes) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (descriptor < 0) cannot_write(path);
  lock(descriptor, path);
  if (ftruncate(descriptor, static_cast<off_t>(keep_bytes)) != 0) cannot_write(path);
  return descriptor;
}

/// `is_new` where there was nothing of that name.
int open_new(const std::string& path, bool& is_new) {
  if (path == "-") return STDOUT_FILENO;
  struct stat status {};
  // Devices (/dev/null, /dev/fd/3) and pipes exist before they are written to; only a regular file would be
  // lost.
  const bool exists = stat(path.c_str(), &status) == 0;
  is_new = !exists;
  if (exists && S_ISREG(status.st_mode))
    throw UsageError(fmt::format("{}: exists already; remove it or name another file", path));
  const int created = exists ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL;
  const int descriptor = open(path.c_str(), created | O_CLOEXEC, 0644);
  if (descriptor < 0) cannot_write(path);
  if (!exists) lock(descriptor, path);
  return descriptor;
}

}  // namespace

LineFile::LineFile(std::string path)
    : path_(std::move(path)), descriptor_(open_new(path_, is_new_)), is_named_(is_new_) {}

LineFile::LineFile(std::string path, std::uintmax_t keep_bytes)
    : path_(std::move(path)),
      descriptor_(open_existing(path_, keep_bytes)),
      is_named_(true),
      has_records_(keep_bytes > 0) {}

LineFile::~LineFile() {
  if (is_new_ && !has_records_) unlink(path_.c_str());
  if (descriptor_ != STDOUT_FILENO) close(descriptor_);
}

void LineFile::append(const std::string& text) {
  const std::string line = text + "\n";
  const off_t whole = lseek(descriptor_, 0, SEEK_END);
  std::size_t written = 0;
  while (written < line.size()) {
    const ssize_t count = write(descriptor_, line.data() + written, line.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const int error = errno;
      // The message below is what counts; a file that cannot be shortened ends in a partial line.
      if (whole >= 0 && ftruncate(descriptor_, whole) != 0) errno = error;
      throw OutputError(fmt::format("{}: cannot be written: {}{}", path_ == "-" ? "standard output" : path_,
                                    std::strerror(error),
                                    has_records_ ? "; the records before are complete" : ""));
    }
    written += static_cast<std::size_t>(count);
  }
  has_records_ = true;
  check_name();
}

void LineFile::check_name() const {
  struct stat status {};
  if (is_named_ && fstat(descriptor_, &status) == 0 && status.st_nlink == 0)
    throw OutputError(fmt::format("{}: has been removed meanwhile, and with it what was written", path_));
}

}  // namespace ssmbench
