// Compiled for every instruction set that Highway knows and chosen at run time. No operation is fused with
// another one, so that all of them give the same bits.

#include "base/random_lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/random_lanes.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h:
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/portable_math.h"

HWY_BEFORE_NAMESPACE();
namespace ssmbench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Words = hn::ScalableTag<std::uint64_t>;  // a word in the low half of each lane; the high half is noise
using WordVector = hn::Vec<Words>;

/// The product of two words.
HWY_INLINE WordVector product(WordVector a, WordVector b) {
#if HWY_TARGET == HWY_SCALAR  // has no lanes of half the width
  return hn::Set(Words(), (hn::GetLane(a) & 0xFFFFFFFFU) * (hn::GetLane(b) & 0xFFFFFFFFU));
#else
  const hn::RepartitionToNarrow<Words> halves;
  return hn::MulEven(hn::BitCast(halves, a), hn::BitCast(halves, b));
#endif
}

/// Ten rounds. Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
HWY_INLINE void philox(std::array<std::uint32_t, 2> key, WordVector& a, WordVector& b, WordVector& c,
                       WordVector& d) {
  const Words lanes;
  const auto first = hn::Set(lanes, 0xD2511F53U);
  const auto second = hn::Set(lanes, 0xCD9E8D57U);
  for (int round = 0; round < 10; ++round) {
    const auto of_a = product(first, a);
    const auto of_c = product(second, c);
    a = hn::Xor(hn::Xor(hn::ShiftRight<32>(of_c), b), hn::Set(lanes, key[0]));
    c = hn::Xor(hn::Xor(hn::ShiftRight<32>(of_a), d), hn::Set(lanes, key[1]));
    b = of_c;
    d = of_a;
    key[0] += 0x9E3779B9U;
    key[1] += 0xBB67AE85U;
  }
}

void calls_of_philox(const std::array<std::uint32_t, 2>& key, std::uint64_t name, std::uint64_t first,
                     std::size_t calls, std::uint32_t* words) {
  const Words lanes;
  const std::size_t width = hn::Lanes(lanes);
  HWY_ALIGN std::array<std::uint64_t, 4 * hn::MaxLanes(Words())> results;
  for (std::size_t done = 0; done < calls; done += width) {
    auto a = hn::Iota(lanes, first + done);
    auto b = hn::ShiftRight<32>(a);
    auto c = hn::Set(lanes, name);
    auto d = hn::Set(lanes, name >> 32U);
    philox(key, a, b, c, d);
    hn::Store(a, lanes, results.data());
    hn::Store(b, lanes, results.data() + width);
    hn::Store(c, lanes, results.data() + 2 * width);
    hn::Store(d, lanes, results.data() + 3 * width);
    const std::size_t count = std::min(width, calls - done);
    for (std::size_t call = 0; call < count; ++call)
      for (std::size_t word = 0; word < 4; ++word)
        words[4 * (done + call) + word] = static_cast<std::uint32_t>(results[word * width + call]);
  }
}

// The normal quantile at ½ + q. Source: Wichura, "Algorithm AS 241: The percentage points of the normal
// distribution", Applied Statistics 37 (1988), PPND7: relative error about 1e-7, the resolution of f32. Its
// third region starts at a tail of e^-25 = 1.4e-11, which 32-bit words (tail ≥ 2^-33) never reach.
constexpr double kCentralHalfWidth = 0.425;

/// c[0] + r·(c[1] + r·(c[2] + …)).
template <class Lanes, class Vector, std::size_t count>
HWY_INLINE Vector polynomial(Lanes lanes, Vector r, const std::array<double, count>& c) {
  auto sum = hn::Set(lanes, c[count - 1]);
  for (std::size_t i = count - 1; i > 0; --i) sum = hn::Add(hn::Mul(sum, r), hn::Set(lanes, c[i - 1]));
  return sum;
}

template <class Lanes, class Vector>
HWY_INLINE Vector central_quantile(Lanes lanes, Vector q) {
  const auto r = hn::Sub(hn::Set(lanes, kCentralHalfWidth * kCentralHalfWidth), hn::Mul(q, q));
  constexpr std::array kOver{3.3871327179e+00, 5.0434271938e+01, 1.5929113202e+02, 5.9109374720e+01};
  constexpr std::array kUnder{1.0, 1.7895169469e+01, 7.8757757664e+01, 6.7187563600e+01};
  return hn::Div(hn::Mul(q, polynomial(lanes, r, kOver)), polynomial(lanes, r, kUnder));
}

/// As portable::log.
template <class Lanes, class Vector>
HWY_INLINE Vector log_of(Lanes lanes, Vector x) {
  const hn::RebindToSigned<Lanes> integers;
  constexpr auto kSqrtHalf = std::bit_cast<std::int64_t>(0x1.6a09e667f3bcdp-1);
  const auto bits = hn::BitCast(integers, x);
  const auto exponent = hn::ShiftRight<52>(hn::Sub(bits, hn::Set(integers, kSqrtHalf)));
  const auto k = hn::ConvertTo(lanes, exponent);
  const auto m = hn::BitCast(lanes, hn::Sub(bits, hn::ShiftLeft<52>(exponent)));
  const auto one = hn::Set(lanes, 1.0);
  const auto s = hn::Div(hn::Sub(m, one), hn::Add(m, one));
  const auto square = hn::Mul(s, s);
  auto sum = hn::Set(lanes, 1.0 / 19);
  for (int odd = 17; odd >= 1; odd -= 2) sum = hn::Add(hn::Mul(sum, square), hn::Set(lanes, 1.0 / odd));
  const auto of_m = hn::Mul(hn::Mul(hn::Set(lanes, 2.0), s), sum);
  return hn::Add(hn::Mul(k, hn::Set(lanes, portable::kLn2High)),
                 hn::Add(hn::Mul(k, hn::Set(lanes, portable::kLn2Low)), of_m));
}

template <class Lanes, class Vector>
HWY_INLINE Vector tail_quantile(Lanes lanes, Vector q) {
  const auto tail = hn::Sub(hn::Set(lanes, 0.5), hn::Abs(q));
  const auto r = hn::Sub(hn::Sqrt(hn::Neg(log_of(lanes, tail))), hn::Set(lanes, 1.6));
  constexpr std::array kOver{1.4234372777e+00, 2.7568153900e+00, 1.3067284816e+00, 1.7023821103e-01};
  constexpr std::array kUnder{1.0, 7.3700164250e-01, 1.2021132975e-01};
  return hn::CopySign(hn::Div(polynomial(lanes, r, kOver), polynomial(lanes, r, kUnder)), q);
}

/// (word + ½)/2³² − ½, exact; by way of a signed integer, which every SIMD unit converts to double.
template <class Lanes>
HWY_INLINE hn::Vec<Lanes> centred(Lanes lanes, const std::uint32_t* words) {
  const hn::Rebind<std::uint32_t, Lanes> of_words;
  const hn::Rebind<std::int32_t, Lanes> integers;
  const auto word = hn::Xor(hn::LoadU(of_words, words), hn::Set(of_words, 0x80000000U));
  const auto value = hn::PromoteTo(lanes, hn::BitCast(integers, word));
  return hn::Mul(hn::Add(value, hn::Set(lanes, 0.5)), hn::Set(lanes, 0x1p-32));
}

template <class Function>
HWY_INLINE void for_all(std::size_t count, const Function& function) {
  const hn::ScalableTag<double> lanes;
  const std::size_t width = hn::Lanes(lanes);
  std::size_t i = 0;
  for (; i + width <= count; i += width) function(lanes, i);
  const hn::CappedTag<double, 1> one;
  for (; i < count; ++i) function(one, i);
}

void quantiles_of_normal(const std::uint32_t* words, std::size_t count, double* values) {
  for_all(count, [&](auto lanes, std::size_t i) HWY_ATTR {
    hn::StoreU(central_quantile(lanes, centred(lanes, words + i)), lanes, values + i);
  });
  // The 15% in the tails, together.
  constexpr std::size_t kMost = 256;
  std::array<std::uint32_t, kMost> tails;
  std::array<std::size_t, kMost> places;
  std::array<double, kMost> results;
  constexpr auto kFirstCentral = static_cast<std::uint32_t>((0.5 - kCentralHalfWidth) * 0x1p32);
  for (std::size_t i = 0; i < count;) {
    std::size_t found = 0;
    for (; i < count && found < kMost; ++i) {  // a few too many: which of them is a tail is seen below
      tails[found] = words[i];
      places[found] = i;
      found += words[i] <= kFirstCentral || ~words[i] <= kFirstCentral ? 1 : 0;
    }
    for_all(found, [&](auto lanes, std::size_t k) HWY_ATTR {
      const auto q = centred(lanes, tails.data() + k);
      const auto in_tail = hn::Gt(hn::Abs(q), hn::Set(lanes, kCentralHalfWidth));
      hn::StoreU(hn::IfThenElse(in_tail, tail_quantile(lanes, q), central_quantile(lanes, q)), lanes,
                 results.data() + k);
    });
    for (std::size_t k = 0; k < found; ++k) values[places[k]] = results[k];
  }
}

}  // namespace ssmbench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ssmbench {

HWY_EXPORT(calls_of_philox);
HWY_EXPORT(quantiles_of_normal);

void philox_calls(const std::array<std::uint32_t, 2>& key, std::uint64_t name, std::uint64_t first,
                  std::size_t calls, std::uint32_t* words) {
  HWY_DYNAMIC_DISPATCH(calls_of_philox)(key, name, first, calls, words);
}

void normal_quantiles(const std::uint32_t* words, std::size_t count, double* values) {
  HWY_DYNAMIC_DISPATCH(quantiles_of_normal)(words, count, values);
}

}  // namespace ssmbench
#endif
