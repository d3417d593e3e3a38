#include "model/case.h"

namespace ssmbench {

std::string Case::id() const {
  std::string id = problem.id();
  (id += '-') += inputs.distribution;
  (id += '-') += inputs.values;
  return (id += "-s") += std::to_string(inputs.seed);
}

}  // namespace ssmbench
