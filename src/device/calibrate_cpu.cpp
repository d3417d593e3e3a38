// What all threads of a CPU reach together, each on a part of its own: each thread's best of many short runs,
// since whatever disturbs one makes it slower and never faster.

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "device/calibrate_cpu.cpp"
#include "hwy/foreach_target.h"  // compiles this file once per instruction set

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::calibration::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Enough independent sums that the latency of a multiply-add (4 or 5 cycles, two a cycle) does not show.
constexpr std::size_t kSums = 12;

/// Multiply-adds, kSums vectors of them per round. Returns how many; `sink` keeps them from being left out.
std::uint64_t multiply_add(std::uint64_t rounds, float* sink) {
  const hn::ScalableTag<float> tag;
  using Vec = hn::Vec<decltype(tag)>;
  const Vec factor = hn::Set(tag, 0.5F);
  const Vec term = hn::Set(tag, 1.0F);
  Vec sum[kSums];
  for (auto& s : sum) s = term;
  for (std::uint64_t i = 0; i < rounds; ++i)
    for (auto& s : sum) s = hn::MulAdd(s, factor, term);
  Vec total = term;
  for (const auto& s : sum) total = hn::Add(total, s);
  *sink = hn::GetLane(total);
  return rounds * kSums * hn::Lanes(tag);
}

void read(const float* from, std::size_t count, float* sink) {
  const hn::ScalableTag<float> tag;
  const std::size_t lanes = hn::Lanes(tag);
  auto first = hn::Zero(tag);
  auto second = first;
  for (std::size_t i = 0; i + 2 * lanes <= count; i += 2 * lanes) {
    first = hn::Add(first, hn::LoadU(tag, from + i));
    second = hn::Add(second, hn::LoadU(tag, from + i + lanes));
  }
  *sink = hn::GetLane(hn::Add(first, second));
}

}  // namespace ssmbench::calibration::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <omp.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <limits>
#include <vector>

#include "device/calibrate_cpu.h"
#include "device/cpu.h"

namespace ssmbench {
namespace calibration {
namespace {

HWY_EXPORT(multiply_add);
HWY_EXPORT(read);

constexpr double kSecondsEach = 0.25;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Runs `run(thread, number of the run)` many times on all threads at once. Returns how many a second each
/// thread does at best, added up. A run has to be a millisecond or so, for some to be left alone on a machine
/// that does something else too; that all threads are left alone at once may never happen there.
template <class Run>
double best_runs_per_second(std::size_t threads, const Run& run) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<double> seconds(threads, std::numeric_limits<double>::infinity());
  for (std::size_t number = 0; number == 0 || seconds_since(begin) < kSecondsEach; ++number) {
#pragma omp parallel num_threads(static_cast <int>(threads))
    {
      const auto thread = static_cast<std::size_t>(omp_get_thread_num());
      const auto start = std::chrono::steady_clock::now();
      run(thread, number);
      seconds[thread] = std::min(seconds[thread], seconds_since(start));
    }
  }
  double sum = 0;
  for (const double best : seconds) sum += 1 / best;
  return sum;
}

double fma_rate(std::size_t threads) {
  constexpr std::uint64_t kRounds = 200'000;
  std::vector<std::uint64_t> counts(threads);
  std::vector<float> sinks(threads);
  const double runs = best_runs_per_second(threads, [&](std::size_t thread, std::size_t) {
    counts[thread] = HWY_DYNAMIC_DISPATCH(multiply_add)(kRounds, &sinks[thread]);
  });
  return static_cast<double>(counts.front()) * runs;  // the same on all threads
}

/// Each run takes the next window of memory that is far larger than the caches together, or an eighth of
/// what is free where that is less.
double dram_rate(std::size_t threads, std::size_t cache, std::size_t free) {
  constexpr std::size_t kLeast = std::size_t{128} << 20;
  constexpr std::size_t kWindow = std::size_t{1} << 20;  // floats
  const std::size_t bytes = std::min(std::max(kLeast, 4 * cache), free / 8);
  const std::size_t windows = std::max<std::size_t>(1, bytes / threads / (kWindow * sizeof(float)));
  std::vector<std::vector<float>> from(threads);
  std::vector<std::vector<float>> to(threads);
  std::vector<float> sinks(threads);
#pragma omp parallel num_threads(static_cast <int>(threads))
  {  // each thread its own, so that pages are near it
    const auto thread = static_cast<std::size_t>(omp_get_thread_num());
    from[thread].resize(windows * kWindow);
    to[thread].resize(windows * kWindow);
  }
  const double copies = best_runs_per_second(threads, [&](std::size_t thread, std::size_t number) {
    const std::size_t at = number % windows * kWindow;
    std::memcpy(to[thread].data() + at, from[thread].data() + at, kWindow * sizeof(float));
  });
  const double reads = best_runs_per_second(threads, [&](std::size_t thread, std::size_t number) {
    HWY_DYNAMIC_DISPATCH(read)(from[thread].data() + number % windows * kWindow, kWindow, &sinks[thread]);
  });
  const auto moved = static_cast<double>(kWindow * sizeof(float));
  return moved * std::max(2 * copies, reads);
}

}  // namespace
}  // namespace calibration

Ceilings calibrate_cpu() {
  const DeviceInfo info = cpu_info();
  const std::size_t cache = cpu_cache_bytes();
  const auto threads = static_cast<std::size_t>(omp_get_max_threads());
  return {.dram_bytes = calibration::dram_rate(threads, cache, info.free_bytes),
          .fmas = calibration::fma_rate(threads),
          .cache_size = static_cast<double>(cache)};
}

}  // namespace ssmbench

#endif  // HWY_ONCE
