#include "bench/roofline.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

namespace ssmbench {
namespace {

double tensor_rate(const Ceilings& ceilings, Math math) {
  switch (math) {
    case Math::tf32:
      return ceilings.tf32_flops;
    case Math::f16:
      return ceilings.f16_flops;
    case Math::bf16:
      return ceilings.bf16_flops;
    default:
      return 0;
  }
}

/// What has to be read: all inputs, but for what a launch may leave alone, such as slots of a cache.
double input_bytes(const Problem& problem, const Work& work) {
  double inputs = 0;
  double all = 0;
  for (const auto& spec : problem.tensors()) {
    const auto bytes = static_cast<double>(spec.bytes());
    all += bytes;
    if (spec.role == Role::input) inputs += bytes;
  }
  const double untouched = std::max(all - work.bytes, 0.0);
  return std::max(inputs - untouched, 0.0);
}

}  // namespace

Roofline floor_of(const Launched& launched, const Ceilings& c, CacheState state) {
  const Work& work = launched.work;
  Roofline floor;
  const auto bound_by = [&floor](const char* what, double amount, double rate) {
    if (rate <= 0 || amount <= 0) return;
    if (const double ms = amount / rate * 1000; ms > floor.floor_ms) {
      floor.floor_ms = ms;
      floor.bound = what;
    }
  };
  const double uncached = work.bytes - c.cache_size;
  bound_by("dram", state == CacheState::cold ? std::max(uncached, launched.input_bytes) : uncached,
           c.dram_bytes);
  bound_by("l2", work.bytes, c.cache_bytes);
  bound_by("fma", work.fmas, c.fmas);
  if (c.fmas > 0)
    bound_by(c.exponentials > 0 ? "mufu" : "fma", kFmasPerExponential * work.exponentials + work.fmas,
             kFmasPerExponential * c.exponentials + c.fmas);
  bound_by("tensor", work.tensor_flops, tensor_rate(c, launched.math));
  bound_by("link", launched.wire_bytes, c.link_bytes);
  if (launched.wire_bytes > 0) floor.floor_ms += 1000 * c.link_seconds;
  return floor;
}

namespace {

Launched launched_by(const Implementation& implementation, const CaseResult& result) {
  const Problem& problem = result.the_case.problem;
  return {.work = result.work,
          .input_bytes = input_bytes(problem, result.work),
          .math = implementation.arithmetic(problem.dtype()).math,
          .wire_bytes = result.team ? result.team->wire_bytes : 0};
}

/// A way of timing that is faster than its floor by more than the margin: its name, and the floor.
std::optional<std::pair<std::string, Roofline>> find_too_fast(const Implementation& implementation,
                                                              const Ceilings& ceilings,
                                                              const CaseResult& result) {
  const Launched launched = launched_by(implementation, result);
  for (const auto& [name, timing] : result.timing) {
    Roofline floor = floor_of(launched, ceilings, name == "cold" ? CacheState::cold : CacheState::hot);
    if (timing.median_ms * speed_margin(implementation.device) < floor.floor_ms)
      return std::pair{name, std::move(floor)};
  }
  return {};
}

}  // namespace

bool is_too_fast(const Implementation& implementation, const Ceilings& ceilings, const CaseResult& result) {
  return find_too_fast(implementation, ceilings, result).has_value();
}

void judge_speed(const Implementation& implementation, const Ceilings& ceilings, CaseResult& result) {
  if (const auto found = find_too_fast(implementation, ceilings, result)) {
    const auto& [name, floor] = *found;
    result.status = Status::invalid;
    result.cause = Cause::too_fast;
    result.reason = fmt::format(
        "faster than the device allows: {} {:.4g} ms, but {} alone takes at least {:.4g} ms; does every "
        "launch "
        "compute?",
        name, result.timing.at(name).median_ms, floor.bound, floor.floor_ms);
    result.timing.clear();
    result.transfers.reset();
    if (result.team) result.team->exchange.reset();
    return;
  }
  const TimingStats* headline = result.headline();
  if (headline == nullptr) return;
  Roofline floor = floor_of(launched_by(implementation, result), ceilings, CacheState::hot);
  if (floor.bound.empty()) return;
  floor.fraction = floor.floor_ms / headline->median_ms;
  result.roofline = std::move(floor);
}

}  // namespace ssmbench
