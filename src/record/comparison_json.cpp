#include "record/comparison_json.h"

namespace ssmbench {
namespace {

nlohmann::ordered_json optional_number(const std::optional<double>& value) {
  return value ? nlohmann::ordered_json(*value) : nullptr;
}

}  // namespace

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
                              {"decay_bias", optional_number(c.decay_bias)},
                              {"decay_bias_ratio", c.decay_bias_ratio}};
  if (c.significand_bits) json["significand_bits"] = *c.significand_bits;
  if (c.rounding_bias)
    json["rounding_bias"] = {{"mean", c.rounding_bias->mean},
                             {"ratio", c.rounding_bias->ratio},
                             {"among", c.rounding_bias->among}};
  const OutputComparison::Parts& parts = c.worst_parts;
  json["tolerance"] = {{"arithmetic", parts.arithmetic},
                       {"storage", parts.storage},
                       {"factor", parts.factor},
                       {"bound", parts.bound},
                       {"operand_bound", optional_number(parts.operand_bound)}};
  for (const auto& span : c.over_time)
    json["over_time"].push_back({{"first", span.first},
                                 {"last", span.last},
                                 {"rms", span.rms},
                                 {"tolerance_ratio", span.worst_ratio}});
  if (c.user_tolerance)
    json["user_tolerance"] = {{"abs", c.user_tolerance->abs}, {"rel", c.user_tolerance->rel}};
  return json;
}

}  // namespace ssmbench
