#include "report/line_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "model/errors.h"

namespace ssmbench {
namespace {

int open_new(const std::string& path) {
  if (path == "-") return STDOUT_FILENO;
  struct stat status {};
  // Devices (/dev/null, /dev/fd/3) and pipes exist before they are written to; only a regular file would be
  // lost.
  const bool exists = stat(path.c_str(), &status) == 0;
  if (exists && S_ISREG(status.st_mode))
    throw UsageError(fmt::format("{}: exists already; remove it or name another file", path));
  const int created = exists ? O_WRONLY : O_WRONLY | O_CREAT | O_EXCL;
  const int descriptor = open(path.c_str(), created | O_CLOEXEC, 0644);
  if (descriptor < 0) throw UsageError(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  return descriptor;
}

}  // namespace

LineFile::LineFile(std::string path) : path_(std::move(path)), descriptor_(open_new(path_)) {}

LineFile::~LineFile() {
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
      throw OutputError(fmt::format("{}: cannot be written: {}; the records before are complete",
                                    path_ == "-" ? "standard output" : path_, std::strerror(error)));
    }
    written += static_cast<std::size_t>(count);
  }
}

}  // namespace ssmbench
