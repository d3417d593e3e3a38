#pragma once

#include <cstddef>
#include <cstdint>

namespace ssmbench {

/// How the ranks of a team exchange data. A rank is a process with a device of its own; all of them run the
/// same program over the same problem. Every member but send and receive is collective: all ranks call it, in
/// the same order and with the same sizes.
///
/// Buffers are in the memory of the rank's device. What was enqueued on `stream` before comes first, and what
/// is enqueued after it finds the result. On the CPU, where stream is null, a call returns when the result is
/// there.
///
/// Every member throws DeviceError, with the rank that it is about, when a rank ends, leaves, does something
/// else or does not answer in time. The team cannot be used after that.
class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  Communicator(Communicator&&) = delete;
  Communicator& operator=(Communicator&&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Rank r's `bytes` bytes go to `to` + r·bytes of every rank.
  virtual void all_gather(const void* from, void* to, std::size_t bytes, void* stream) = 0;
  /// The sum over the ranks, in place. The terms are added in the order of ranks on the CPU; every rank gets
  /// the same bits, and so does every launch.
  virtual void all_reduce(float* values, std::size_t count, void* stream) = 0;
  /// `bytes` bytes at from + r·bytes go to rank r, which puts them at to + bytes·(sender).
  virtual void all_to_all(const void* from, void* to, std::size_t bytes, void* stream) = 0;

  /// One rank sends and the other receives, the same number of bytes.
  virtual void send(const void* from, std::size_t bytes, int to, void* stream) = 0;
  virtual void receive(void* to, std::size_t bytes, int from, void* stream) = 0;

  /// Returns when every rank has called it. Of the host alone: what is enqueued goes on.
  virtual void barrier() = 0;
  /// The largest value of all ranks. Whatever a rank measures or finds by itself (seconds, free memory, an
  /// error) goes through this before the ranks branch on it.
  virtual double agree(double value) = 0;
};

}  // namespace ssmbench
