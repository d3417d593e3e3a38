#include <nlohmann/json.hpp>
#include <string>

#include "base/json_text.h"
#include "catch.h"
#include "config/config_files.h"
#include "config/make_schema.h"

using namespace ssmbench;

TEST_CASE("the published schema is the program's") {
  CHECK(json_text(config_schema(), 2) + "\n" == test::read_file(SSMBENCH_SOURCE_DIR "/configs/schema.json"));
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
  check_descriptions(config_schema(), "");
}
