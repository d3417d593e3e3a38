#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.h"

namespace ssmbench {

/// Where and how a document departs from configs/schema.json.
struct Violation {
  JsonPath path;
  std::string what;
  std::string expected;
};

/// The violation that lies deepest in the document, which is the most specific one; but a document that does
/// not name this format is told so first.
std::optional<Violation> find_violation(const Json& document);

/// What the schema has against a list of values for an axis of a known op.
std::optional<Violation> find_axis_violation(const std::string& op, const std::string& axis,
                                             const Json& values);

/// The schema's description of what belongs at `path`, specific to the kind of value that is there.
std::string expectation(const Json& document, const JsonPath& path);

/// Names of the axes that sweeps of a known op may have, in the schema's order.
std::vector<std::string> axis_names(std::string_view op);

}  // namespace ssmbench
