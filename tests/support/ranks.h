#pragma once

#include <chrono>
#include <cstddef>
#include <cstring>
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

/// A team that does what another one does, for those that change a part of it.
class PassingTeam : public Communicator {
 public:
  explicit PassingTeam(Communicator& team) : team_(team) {}
  int rank() const override { return team_.rank(); }
  int size() const override { return team_.size(); }
  void all_gather(const void* from, void* to, std::size_t bytes, void* stream) override {
    team_.all_gather(from, to, bytes, stream);
  }
  void all_reduce(float* values, std::size_t count, void* stream) override {
    team_.all_reduce(values, count, stream);
  }
  void all_to_all(const void* from, void* to, std::size_t bytes, void* stream) override {
    team_.all_to_all(from, to, bytes, stream);
  }
  void send(const void* from, std::size_t bytes, int to, void* stream) override {
    team_.send(from, bytes, to, stream);
  }
  void receive(void* to, std::size_t bytes, int from, void* stream) override {
    team_.receive(to, bytes, from, stream);
  }
  void barrier() override { team_.barrier(); }
  double agree(double value) override { return team_.agree(value); }

 private:
  Communicator& team_;
};

/// A team in which a rank finds other payloads than were gathered.
class ShiftedGather : public PassingTeam {
 public:
  using PassingTeam::PassingTeam;
  void all_gather(const void* from, void* to, std::size_t bytes, void* stream) override {
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(size()));
    PassingTeam::all_gather(from, all.data(), bytes, stream);
    std::memcpy(to, all.data() + bytes, all.size() - bytes);
    std::memcpy(static_cast<std::byte*>(to) + all.size() - bytes, all.data(), bytes);
  }
};

/// A team that leaves sums as they are.
class NothingAdded : public PassingTeam {
 public:
  using PassingTeam::PassingTeam;
  void all_reduce(float* /*values*/, std::size_t /*count*/, void* /*stream*/) override {}
};

}  // namespace ssmbench::test
