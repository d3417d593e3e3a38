#include "config/schema.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <numeric>

// g++ 12 takes a constant string in the library for an overlapping copy (GCC bug 105651).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wrestrict"
#include <valijson/adapters/nlohmann_json_adapter.hpp>
#include <valijson/schema.hpp>
#include <valijson/schema_parser.hpp>
#include <valijson/validation_results.hpp>
#include <valijson/validator.hpp>
#pragma GCC diagnostic pop

#include "config/make_schema.h"

namespace ssmbench {

namespace {

using valijson::adapters::NlohmannJsonAdapter;
using Nodes = std::vector<const Json*>;

const Json& schema() {
  static const Json made = config_schema();
  return made;
}

const valijson::Schema& compiled_schema() {
  static const auto compiled = [] {
    const nlohmann::json source(schema());
    auto result = std::make_unique<valijson::Schema>();
    valijson::SchemaParser(valijson::SchemaParser::kDraft7)
        .populateSchema(NlohmannJsonAdapter(source), *result);
    return result;
  }();
  return *compiled;
}

// valijson says that a place is wrong, but for anyOf and conditions not usefully how. So only the place is
// taken from it; the schema nodes that govern the place are then looked up, and they say what was expected.

const Json& resolve(const Json& node) {
  const auto ref = node.find("$ref");
  if (ref == node.end()) return node;
  return resolve(schema().at(Json::json_pointer(ref->get<std::string>().substr(1))));  // "#/definitions/…"
}

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer" || type == "number")
    return value.is_number();  // 1.5 is a poor integer, not another kind
  return value.type_name() == type;
}

/// Whether an alternative of the schema is meant for the kind of `value`: same type, same constants.
bool is_meant_for(const Json& node, const Json& value) {
  if (node.contains("type") && !has_type(value, node["type"])) return false;
  if (!node.contains("properties") || !value.is_object()) return true;
  return std::ranges::all_of(node["properties"].items(), [&](const auto& property) {
    const auto wanted = property.value().find("const");
    return wanted == property.value().end() ||
           (value.contains(property.key()) && value[property.key()] == *wanted);
  });
}

/// Adds the schema nodes that govern `value`, general ones before specific ones.
void add_governing(const Json& reference, const Json& value, Nodes& nodes) {
  const Json& node = resolve(reference);
  nodes.push_back(&node);
  if (node.contains("allOf"))
    for (const auto& part : node["allOf"]) add_governing(part, value, nodes);
  if (node.contains("anyOf"))
    for (const auto& alternative : node["anyOf"])
      if (is_meant_for(resolve(alternative), value)) add_governing(alternative, value, nodes);
  if (node.contains("if") && is_meant_for(node["if"], value)) add_governing(node["then"], value, nodes);
}

/// The schema of a member of what `node` describes; null when it says nothing about it.
const Json* member_schema(const Json& node, const Json& container, const std::string& token) {
  if (container.is_array()) return node.contains("items") ? &node["items"] : nullptr;
  if (node.contains("properties") && node["properties"].contains(token)) return &node["properties"][token];
  if (node.contains("additionalProperties") && node["additionalProperties"].is_object())
    return &node["additionalProperties"];
  return nullptr;
}

const Json& member(const Json& container, const std::string& token) {
  return container.is_array() ? container.at(std::stoul(token)) : container.at(token);
}

Nodes governing(const Json& document, const JsonPath& path) {
  Nodes nodes;
  add_governing(schema(), document, nodes);
  const Json* container = &document;
  for (const auto& token : path) {
    const Json& value = member(*container, token);
    Nodes next;
    for (const Json* node : nodes)
      if (const Json* inner = member_schema(*node, *container, token)) add_governing(*inner, value, next);
    nodes = std::move(next);
    container = &value;
  }
  return nodes;
}

std::vector<std::string> keys_of(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, _] : object.items()) keys.push_back(key);
  return keys;
}

/// Levenshtein's distance: insertions, deletions and replacements between two words.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

std::string unknown_key(const std::string& key, const std::vector<std::string>& known) {
  constexpr std::size_t kTypos = 2;
  const auto distance = [&](const std::string& word) { return edit_distance(key, word); };
  const auto nearest = std::ranges::min_element(known, {}, distance);
  std::string text = fmt::format("unknown key {}", shown(key));
  if (distance(*nearest) <= kTypos) text += fmt::format(" (did you mean {}?)", shown(*nearest));
  return text;
}

Violation explain(const Json& document, const JsonPath& path) {
  const Json* value = &document;
  for (const auto& token : path) value = &member(*value, token);
  for (const Json* node : governing(document, path)) {
    if (!value->is_object()) break;
    if (node->value("additionalProperties", Json()) == false) {
      const auto known = keys_of((*node)["properties"]);
      for (const auto& key : keys_of(*value))
        if (std::ranges::find(known, key) == known.end())
          return {path, unknown_key(key, known), fmt::format("one of {}", fmt::join(known, ", "))};
    }
    for (const auto& key : node->value("required", Json::array()))
      if (!value->contains(key.get<std::string>()))
        return {path, fmt::format("{} is missing", shown(key)), expectation(document, path)};
  }
  return {path, fmt::format("got {}", shown(*value)), expectation(document, path)};
}

/// valijson's context, "<root>", "[sweeps]", "[0]", as a path.
JsonPath path_of(const std::vector<std::string>& context) {
  JsonPath path;
  for (auto token = context.begin() + 1; token != context.end(); ++token)
    path.push_back(token->substr(1, token->size() - 2));
  return path;
}

}  // namespace

std::optional<Violation> find_violation(const Json& document) {
  const Json& format = schema()["properties"]["format"]["const"];
  if (!document.is_object()) return explain(document, {});
  if (!document.contains("format")) return Violation{{}, "\"format\" is missing", expectation(document, {})};
  if (document["format"] != format) return explain(document, {"format"});

  const nlohmann::json target(document);
  valijson::ValidationResults results;
  if (valijson::Validator().validate(compiled_schema(), NlohmannJsonAdapter(target), &results)) return {};
  const auto depth = [](const auto& error) { return error.context.size(); };
  return explain(document, path_of(std::ranges::max_element(results, {}, depth)->context));
}

std::optional<Violation> find_axis_violation(const std::string& op, const std::string& axis,
                                             const Json& values) {
  const Json& format = schema()["properties"]["format"]["const"];
  const Json sweep{{"op", op}, {"axes", {{axis, values}}}};
  return find_violation({{"format", format}, {"sweeps", Json::array({sweep})}});
}

std::string expectation(const Json& document, const JsonPath& path) {
  std::string description;
  for (const Json* node : governing(document, path)) description = node->value("description", description);
  return description;
}

std::vector<std::string> axis_names(std::string_view op) {
  return keys_of(resolve(schema()["definitions"][std::string(op)])["properties"]);
}

}  // namespace ssmbench
