#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "catch.h"
#include "config/config_files.h"
#include "config/document.h"
#include "inputs/distributions.h"
#include "model/case.h"
#include "model/problem.h"

namespace ssmbench {
extern const char* const config_schema_text;
}

using namespace ssmbench;

namespace {

const Json& schema() {
  static const Json parsed = Json::parse(config_schema_text);
  return parsed;
}

std::set<std::string> keys_of(const Json& object) {
  std::set<std::string> keys;
  for (const auto& [key, _] : object.items()) keys.insert(key);
  return keys;
}

const Json& definition(const Json& reference) {
  return schema().at(Json::json_pointer(reference.at("$ref").get<std::string>().substr(1)));
}

/// The schema of one value of an axis: the first alternative of "value, list or range".
const Json& value_schema(const Json& axis) {
  const Json& whole = definition(axis.contains("allOf") ? axis["allOf"][0] : axis);
  const Json& single = whole.at("anyOf")[0];
  return single.contains("$ref") ? definition(single) : single;
}

Json to_json(const AxisValue& value) {
  return std::visit([](const auto& v) { return Json(v); }, value);
}

const Json& axes_of(const OpSpec& op) {
  const Json& axes = schema()["definitions"][op.name];
  return (axes.contains("$ref") ? definition(axes) : axes)["properties"];
}

const std::set<std::string> kInputAxes{"inputs", "values", "seed"};

}  // namespace

TEST_CASE("the executable validates with the published schema") {
  CHECK(config_schema_text == test::read_file(SSMBENCH_SOURCE_DIR "/configs/schema.json"));
}

TEST_CASE("schema and op tables know the same ops") {
  std::set<std::string> ops;
  for (const auto* op : all_ops()) ops.insert(op->name);
  const Json& sweep = schema()["definitions"]["sweep"];
  CHECK(sweep["properties"]["op"]["enum"].get<std::set<std::string>>() == ops);

  std::set<std::string> conditions;
  for (const auto& condition : sweep["allOf"]) {
    const auto name = condition["if"]["properties"]["op"]["const"].get<std::string>();
    conditions.insert(name);
    CHECK(condition["then"]["properties"]["axes"]["$ref"] == "#/definitions/" + name);
  }
  CHECK(conditions == ops);
}

TEST_CASE("schema and input generator know the same distributions") {
  std::vector<std::string> names;
  for (const auto& distribution : distributions()) names.push_back(distribution.name);
  for (const auto* op : all_ops())
    CHECK(value_schema(axes_of(*op)["inputs"]).at("enum").get<std::vector<std::string>>() == names);
}

TEST_CASE("schema and op tables know the same axes, values and defaults") {
  for (const auto* op : all_ops()) {
    std::set<std::string> known = kInputAxes;
    known.insert("shape");
    for (const auto& axis : op->axes) {
      INFO(op->name << " " << axis.name);
      known.insert(axis.name);
      REQUIRE(axes_of(*op).contains(axis.name));
      const Json& in_schema = axes_of(*op)[axis.name];
      const Json& value = value_schema(in_schema);
      const char* const type = axis.kind == AxisKind::size   ? "integer"
                               : axis.kind == AxisKind::flag ? "boolean"
                                                             : "string";
      CHECK(value["type"] == type);
      CHECK(value.value("enum", std::vector<std::string>{}) == axis.choices);
      REQUIRE(in_schema.contains("default") == axis.fallback.has_value());
      if (axis.fallback) CHECK(in_schema["default"] == to_json(*axis.fallback));
    }
    CHECK(keys_of(axes_of(*op)) == known);
  }
}

TEST_CASE("the schema's defaults of input axes are the program's") {
  const InputSpec inputs;
  for (const auto* op : all_ops()) {
    CHECK(axes_of(*op)["inputs"]["default"] == inputs.distribution);
    CHECK(axes_of(*op)["values"]["default"] == inputs.values);
    CHECK(axes_of(*op)["seed"]["default"] == inputs.seed);
  }
}

TEST_CASE("a shape may set every size of every op") {
  std::set<std::string> sizes;
  for (const auto* op : all_ops())
    for (const auto& axis : op->axes)
      if (axis.kind == AxisKind::size) sizes.insert(axis.name);
  CHECK(keys_of(schema()["definitions"]["shape"]["properties"]) == sizes);
}

namespace {

/// Goes through the whole schema and checks what messages are made from.
void check_descriptions(const Json& node, const std::string& place) {
  INFO(place);
  if (node.is_object() && node.contains("enum")) {
    std::string words;
    for (const auto& word : node["enum"])
      words += (words.empty() ? "one of " : ", ") + word.get<std::string>();
    CHECK(node.value("description", "") == words);
  }
  if (node.is_object() && (node.contains("minimum") || node.contains("maxLength")))
    CHECK_FALSE(node.value("description", "").empty());
  if (node.is_object() && node.contains("maximum") && node["description"] != "a factor of at least 2" &&
      node["description"] != "an integer of at least 1")
    CHECK(node["description"] ==
          "an integer from " + node["minimum"].dump() + " to " + node["maximum"].dump());
  if (node.is_structured())
    for (const auto& [key, inner] : node.items()) check_descriptions(inner, place + "/" + key);
}

}  // namespace

TEST_CASE("the schema's descriptions, which messages quote, say what its constraints say") {
  check_descriptions(schema(), "");
}
