#include "report/json.h"

namespace ssmbench {

nlohmann::ordered_json to_json(const OutputComparison& c) {
  nlohmann::ordered_json json{{"max_abs", c.max_abs},
                              {"rel_l2", c.rel_l2},
                              {"max_ulp", c.max_ulp},
                              {"tolerance_ratio", c.tolerance_ratio},
                              {"worst_index", c.worst_index},
                              {"worst_expected", c.worst_expected},
                              {"worst_got", c.worst_got},
                              {"nonfinite", c.nonfinite},
                              {"judged", c.judged},
                              {"rms_ratio", c.rms_ratio},
                              {"decay_bias", c.decay_bias ? nlohmann::ordered_json(*c.decay_bias) : nullptr},
                              {"decay_bias_ratio", c.decay_bias_ratio}};
  if (c.user_tolerance)
    json["user_tolerance"] = {{"abs", c.user_tolerance->abs}, {"rel", c.user_tolerance->rel}};
  return json;
}

}  // namespace ssmbench
