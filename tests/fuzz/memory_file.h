#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace ssmbench::test {

/// A file that lies in memory and is rewritten for each input: no disk slows the fuzzer down. (HDF5 asks for
/// the real path of what it opens, which memfd_create's files do not have.)
class MemoryFile {
 public:
  MemoryFile()
      : path_("/dev/shm/ssmbench-fuzz-" + std::to_string(getpid())),
        descriptor_(open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600)) {
    if (descriptor_ < 0) std::abort();
  }
  ~MemoryFile() {
    close(descriptor_);
    unlink(path_.c_str());
  }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;
  MemoryFile(MemoryFile&&) = delete;
  MemoryFile& operator=(MemoryFile&&) = delete;

  std::filesystem::path holding(const std::uint8_t* data, std::size_t size) const {
    const auto bytes = static_cast<off_t>(size);
    if (ftruncate(descriptor_, bytes) != 0 || pwrite(descriptor_, data, size, 0) != bytes) std::abort();
    return path_;
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace ssmbench::test
