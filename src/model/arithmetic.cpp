#include "model/arithmetic.h"

#include <algorithm>
#include <array>

#include "base/portable_math.h"

namespace ssmbench {
namespace {

struct MathInfo {
  Math math;
  std::string_view name;
  int significand_bits;  // the implicit one included
};

constexpr std::array<MathInfo, 5> kMath{{{Math::f32, "f32", 24},
                                         {Math::f64, "f64", 53},
                                         {Math::tf32, "tf32", 11},
                                         {Math::f16, "f16", 11},
                                         {Math::bf16, "bf16", 8}}};

}  // namespace

std::string_view name_of(Math math) {
  return kMath.at(static_cast<std::size_t>(math)).name;
}

std::optional<Math> parse_math(std::string_view name) {
  const auto* found = std::ranges::find(kMath, name, &MathInfo::name);
  if (found == kMath.end()) return std::nullopt;
  return found->math;
}

std::vector<std::string_view> math_names() {
  std::vector<std::string_view> names;
  for (const auto& info : kMath) names.push_back(info.name);
  return names;
}

double unit_roundoff(Math math) {
  return portable::power_of_two(-kMath.at(static_cast<std::size_t>(math)).significand_bits);
}

double Arithmetic::operand_roundoff() const {
  return std::max(unit_roundoff(math), unit_roundoff(state_dtype));
}

}  // namespace ssmbench
