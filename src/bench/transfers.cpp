#include "bench/transfers.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/errors.h"
#include "bench/statistics.h"
#include "device/cpu.h"

namespace ssmbench {
namespace {

constexpr std::size_t kMostRepeats = 5;

/// Tensors lie in one block of memory at multiples of this.
std::size_t aligned(std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

template <class Tensor>
std::size_t total_bytes(const std::vector<Tensor>& tensors) {
  std::size_t total = 0;
  for (const auto& tensor : tensors) total += aligned(tensor.bytes);
  return total;
}

}  // namespace

std::optional<TransferTimes> TransferTimer::measure(const Launch& launch,
                                                    const std::vector<MemorySpan>& outputs) {
  if (!prepare(outputs)) return {};
  const bool is_first = !copies_only_;
  TransferTimes times = copies_only_.value_or(TransferTimes());
  for (const bool pinned : {true, false}) {
    const Copies both_ways = copies(pinned, outputs);
    auto& of_kind = pinned ? times.pinned : times.pageable;
    if (is_first) {
      of_kind.h2d_ms = median_ms([&] { enqueue_in(both_ways); });
      of_kind.d2h_ms = median_ms([&] { enqueue_out(both_ways); });
    }
    of_kind.end_to_end_ms = median_ms([&] {
      enqueue_in(both_ways);
      launch(device_.stream());
      enqueue_out(both_ways);
    });
  }
  if (is_first) copies_only_ = times;
  return times;
}

bool TransferTimer::prepare(const std::vector<MemorySpan>& outputs) {
  if (!is_prepared_) is_prepared_ = make_room(outputs);
  return *is_prepared_;
}

bool TransferTimer::make_room(const std::vector<MemorySpan>& outputs) {
  const std::size_t bytes = total_bytes(inputs_) + total_bytes(outputs);
  if (bytes > std::min(kMostBytes, cpu_info().free_bytes / 4))
    return false;  // pinned memory cannot be swapped
  pinned_ = static_cast<std::byte*>(device_.pinned_memory(bytes));
  if (pinned_ == nullptr) return false;
  std::byte* at = pinned_;
  for (const auto& input : inputs_) {
    std::memcpy(at, input.host, input.bytes);
    at += aligned(input.bytes);
  }
  pageable_outputs_ = HostBuffer(total_bytes(outputs));
  std::memset(pageable_outputs_.data(), 0, pageable_outputs_.bytes());  // so that no copy waits for pages
  return true;
}

TransferTimer::Copies TransferTimer::copies(bool pinned, const std::vector<MemorySpan>& outputs) const {
  Copies all;
  std::byte* at = pinned_;
  for (const auto& input : inputs_) {
    all.in.push_back({input.device, pinned ? at : input.host, input.bytes});
    at += aligned(input.bytes);
  }
  if (!pinned) at = static_cast<std::byte*>(pageable_outputs_.data());
  for (const auto& output : outputs) {
    all.out.push_back({at, output});
    at += aligned(output.bytes);
  }
  return all;
}

void TransferTimer::enqueue_in(const Copies& copies) {
  for (const auto& copy : copies.in) device_.enqueue_copy_in(copy.device, copy.host, copy.bytes);
}

void TransferTimer::enqueue_out(const Copies& copies) {
  for (const auto& [host, span] : copies.out) device_.enqueue_copy_out(host, span.data, span.bytes);
}

template <class Work>
double TransferTimer::median_ms(const Work& work) {
  using std::chrono::steady_clock;
  std::vector<double> times;
  double spent = 0;
  do {
    if (stop_) throw Interrupted();
    const auto start = steady_clock::now();
    work();
    device_.synchronize();
    const std::chrono::duration<double, std::milli> elapsed = steady_clock::now() - start;
    times.push_back(elapsed.count());
    spent += elapsed.count() / 1000;
  } while (times.size() < kMostRepeats && spent < seconds_);
  std::ranges::sort(times);
  return quantile(times, 0.5);
}

}  // namespace ssmbench
