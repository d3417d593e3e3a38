#include "model/case.h"

#include <fmt/format.h>

namespace ssmbench {

std::string Case::id() const {
  return fmt::format("{}-{}-{}-s{}", problem.id(), inputs.distribution, inputs.values, inputs.seed);
}

}  // namespace ssmbench
