#include "study/parts.h"

#include <algorithm>

namespace ssmbench {

const std::vector<PartwiseComputation>& partwise_computations() {
  static const std::vector<PartwiseComputation> all{scan_in_steps(), scan_in_halves(), heads_as_channels(),
                                                    ssd_in_steps(),  ssd_in_halves(),  ssd_in_sequences(),
                                                    ssd_as_scan()};
  return all;
}

const PartwiseComputation* find_partwise(std::string_view check, std::string_view op) {
  const auto& all = partwise_computations();
  const auto found = std::ranges::find_if(
      all, [&](const PartwiseComputation& each) { return each.check == check && each.op == op; });
  return found == all.end() ? nullptr : &*found;
}

}  // namespace ssmbench
