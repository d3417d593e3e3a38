#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "model/communicator.h"
#include "team/shared_memory.h"

namespace ssmbench::test {

/// Memory that is the same for processes that are forked later; zeros at first.
class SharedBytes {
 public:
  explicit SharedBytes(std::size_t bytes);
  ~SharedBytes();
  SharedBytes(const SharedBytes&) = delete;
  SharedBytes& operator=(const SharedBytes&) = delete;
  SharedBytes(SharedBytes&&) = delete;
  SharedBytes& operator=(SharedBytes&&) = delete;

  std::byte* data() const { return data_; }
  std::size_t size() const { return bytes_; }
  template <class T>
  std::span<T> as() const {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }

 private:
  std::byte* data_;
  std::size_t bytes_;
};

struct TeamOptions {
  std::chrono::milliseconds patience{20000};
  std::size_t mailbox_bytes = TeamMemory::kMailboxBytes;
};

/// Runs body(communicator) as `ranks` processes, each with one thread. How each of them ended: "" when body
/// returned, the words of what it threw, "signal 9".
std::vector<std::string> run_ranks(int ranks, const std::function<void(Communicator&)>& body,
                                   const TeamOptions& options = {});

}  // namespace ssmbench::test
