#pragma once

#include "device/ceilings.h"
#include "record/result.h"

namespace ssmbench {

/// Where a launch finds its inputs.
enum class CacheState { hot, cold };

/// What a launch is made of, as far as its least time depends on it.
struct Launched {
  Work work;
  double input_bytes = 0;  ///< of work.bytes
  Math math = Math::f32;   ///< of what tensor cores do
  double wire_bytes = 0;   ///< of teams: that a rank sends
};

/// The least time that a launch can take by what a device can do at most: the largest of
///
///   dram     bytes that are in no cache. Hot: all but as many as the caches hold. Cold: all inputs that have
///            to be read, since outputs may stay in the cache
///   l2       all bytes (GPUs)
///   fma      multiply-adds
///   mufu     exponentials, where multiply-adds may take the place of some: kFmasPerExponential·E + F over
///            kFmasPerExponential·(rate of exponentials) + (rate of multiply-adds). CPUs: all of them
///   tensor   operations on tensor cores, at the rate of `math`
///   link     bytes between the ranks of a team
///
/// A team that exchanges anything takes the time of its shortest exchange besides: no rank can end before.
/// Ceilings that are not known bound nothing. `bound` is empty, and the time 0, where nothing is known.
/// `fraction` is left alone.
Roofline floor_of(const Launched& launched, const Ceilings& ceilings, CacheState state);

/// A polynomial of degree 4, without the reduction of its argument: fewer than any exponential takes that is
/// exact to f32 over the range of decays.
inline constexpr double kFmasPerExponential = 4;

/// How much faster than its floor a median may be before it counts as not measured right. Microbenchmarks on
/// a GPU agree within a percent or two. A CPU changes its clock, and what its neighbours leave of memory and
/// caches changes too, while one that does nothing is faster by orders of magnitude.
constexpr double speed_margin(DeviceKind device) {
  return device == DeviceKind::cuda ? 1.05 : 2;
}

/// Whether a timing is faster than its floor, and by more than the margin.
bool is_too_fast(const Implementation& implementation, const Ceilings& ceilings, const CaseResult& result);

/// Fills in `roofline`, of the headline timing; turns a result with a timing faster than its floor into one
/// that is `invalid`, with the reason and without timings. A result without timings stays as it is.
void judge_speed(const Implementation& implementation, const Ceilings& ceilings, CaseResult& result);

}  // namespace ssmbench
