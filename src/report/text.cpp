#include "report/text.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_text.h"

namespace ssmbench {
namespace {

constexpr const char* kUnknown = "\xEF\xBF\xBD";

std::string valid_utf8(std::string_view text) {
  const auto quoted = json_text(nlohmann::ordered_json(text));
  return nlohmann::ordered_json::parse(quoted).get<std::string>();
}

std::string xml_character(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\t':
    case '\n':
    case '\r':
      return fmt::format("&#{};", static_cast<int>(c));
    default:
      return static_cast<unsigned char>(c) < 0x20 ? kUnknown : std::string(1, c);
  }
}

void replace_all(std::string& text, std::string_view what, std::string_view by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
}

}  // namespace

std::string xml_text(std::string_view text) {
  std::string result;
  for (const char c : valid_utf8(text)) result += xml_character(c);
  for (const char* noncharacter : {"\xEF\xBF\xBE", "\xEF\xBF\xBF"})
    replace_all(result, noncharacter, kUnknown);
  return result;
}

std::string csv_field(std::string_view text) {
  std::string result = valid_utf8(text);
  if (result.find_first_of(",\"\r\n") == std::string::npos) return result;
  replace_all(result, "\"", "\"\"");
  return "\"" + result + "\"";
}

std::string markdown_cell(std::string_view text) {
  std::string result;
  for (const char c : valid_utf8(text)) {
    if (c == '|')
      result += "\\|";
    else if (c == '<')
      result += "&lt;";
    else
      result += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return result;
}

}  // namespace ssmbench
