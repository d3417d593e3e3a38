#include "config/make_schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "inputs/distributions.h"
#include "model/case.h"
#include "model/method.h"
#include "model/operation.h"

namespace ssmbench {

extern const char* const config_schema_frame_text;  // schema_frame.json, embedded by the build

namespace {

using Words = std::vector<std::string>;

Json reference_to(const std::string& definition) {
  return {{"$ref", "#/definitions/" + definition}};
}

/// One of the words.
Json choice_schema(const Words& words) {
  return {
      {"type", "string"}, {"enum", words}, {"description", fmt::format("one of {}", fmt::join(words, ", "))}};
}

/// One of the words, or a list of them.
Json choice_axis_schema(const Words& words) {
  const Json list{{"type", "array"},
                  {"description", fmt::format("a non-empty list of {}", fmt::join(words, ", "))},
                  {"minItems", 1},
                  {"items", choice_schema(words)}};
  return {{"description", fmt::format("one of {}, or a non-empty list of them", fmt::join(words, ", "))},
          {"anyOf", Json::array({choice_schema(words), list})}};
}

Json axis_schema(const AxisSpec& axis) {
  switch (axis.kind) {
    case AxisKind::size:
      return reference_to("size_axis");
    case AxisKind::flag:
      return reference_to("flag_axis");
    case AxisKind::interval:
      return reference_to("interval_axis");
    case AxisKind::choice:
      return choice_axis_schema(axis.choices);
  }
  throw std::logic_error("unreachable");
}

/// Draft 7 ignores what stands beside a $ref, hence the allOf.
Json with_default(const Json& schema, const Json& fallback) {
  return {{"allOf", Json::array({schema})}, {"default", fallback}};
}

/// "dim with form mamba1, nheads and headdim with form mamba2"; empty where every axis is always there.
std::string conditions_of(const OpSpec& op) {
  std::vector<std::pair<std::pair<std::string, std::string>, Words>> by_choice;
  for (const auto& axis : op.axes) {
    if (!axis.only_with) continue;
    const auto known = std::ranges::find_if(
        by_choice, [&](const auto& condition) { return condition.first == *axis.only_with; });
    if (known == by_choice.end())
      by_choice.push_back({*axis.only_with, {axis.name}});
    else
      known->second.push_back(axis.name);
  }
  Words texts;
  for (const auto& [choice, axes] : by_choice)
    texts.push_back(fmt::format("{} with {} {}", fmt::join(axes, " and "), choice.first, choice.second));
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// The axes of a sweep of the operation.
Json op_schema(const OpSpec& op) {
  Json properties{{"shape", reference_to("shape_axis")}};
  for (const auto& axis : op.axes) {
    const Json schema = axis_schema(axis);
    properties[axis.name] =
        axis.fallback
            ? with_default(schema, std::visit([](const auto& value) { return Json(value); }, *axis.fallback))
            : schema;
  }
  const InputSpec inputs;
  properties["inputs"] = with_default(reference_to("inputs_axis"), inputs.distribution);
  properties["values"] = with_default(reference_to("values_axis"), inputs.values);
  properties["seed"] = with_default(reference_to("seed_axis"), inputs.seed);
  const std::string conditions = conditions_of(op);
  return {{"description",
           fmt::format("an object of the operation's axes{}{}", conditions.empty() ? "" : ": ", conditions)},
          {"additionalProperties", false},
          {"properties", properties}};
}

/// Puts into `sweep` that "op" is one of these and which axes each has.
void add_ops(Json& sweep, const std::vector<const OpSpec*>& ops) {
  Words names;
  Json conditions = Json::array();
  for (const OpSpec* op : ops) {
    names.push_back(op->name);
    const Json is_op{{"properties", {{"op", {{"const", op->name}}}}}, {"required", {"op"}}};
    conditions.push_back({{"if", is_op}, {"then", {{"properties", {{"axes", reference_to(op->name)}}}}}});
  }
  sweep["properties"]["op"] = choice_schema(names);
  sweep["allOf"] = conditions;
}

void add_consistency(Json& study) {
  std::vector<const OpSpec*> ops;
  Words checks;
  for (const OpSpec* op : all_ops()) {
    if (!op->parts.empty()) ops.push_back(op);
    for (const auto& parts : op->parts)
      if (std::ranges::find(checks, parts.check) == checks.end()) checks.push_back(parts.check);
  }
  study["properties"]["check"]["items"] = choice_schema(checks);
  add_ops(study, ops);
}

/// A shape may set every size of every operation.
Json shape_schema() {
  Json sizes = Json::object();
  for (const OpSpec* op : all_ops())
    for (const auto& axis : op->axes)
      if (axis.kind == AxisKind::size) sizes[axis.name] = reference_to("size");
  return {{"description", "a shape: an object of sizes, {\"dim\": 2048, \"dstate\": 16}"},
          {"type", "object"},
          {"minProperties", 1},
          {"additionalProperties", false},
          {"properties", sizes}};
}

}  // namespace

Json config_schema() {
  Json schema = Json::parse(config_schema_frame_text);
  Json& definitions = schema["definitions"];
  add_ops(definitions["sweep"], all_ops());
  add_consistency(definitions["consistency_study"]);
  definitions["convergence_study"]["properties"]["method"]["items"] = choice_schema(method_names());
  definitions["shape"] = shape_schema();
  Words names;
  for (const auto& distribution : distributions()) names.push_back(distribution.name);
  definitions["inputs_axis"] = choice_axis_schema(names);
  definitions["values_axis"] = choice_axis_schema({"native", "shared", "nan"});
  std::vector<std::pair<Json, std::string>>
      seen;  // what forward operations and their gradients have in common
  for (const OpSpec* op : all_ops()) {
    const Json made = op_schema(*op);
    const auto same = std::ranges::find(seen, made, &std::pair<Json, std::string>::first);
    definitions[op->name] = same == seen.end() ? made : reference_to(same->second);
    if (same == seen.end()) seen.emplace_back(made, op->name);
  }
  return schema;
}

}  // namespace ssmbench
