#include "record/plain_json.h"

#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

namespace ssmbench {
namespace {

using Json = nlohmann::json;

/// Members return false where the text is not plain JSON; what was read until then is of no use.
class PlainReader {
 public:
  explicit PlainReader(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

  /// `depth` is that of the arrays and objects around the value.
  bool read(Json& value, int depth) {
    constexpr int kMostDepth = 32;  // of records 6; calls are as deep
    if (at_ == end_ || depth > kMostDepth) return false;
    switch (*at_) {
      case '{':
        return read_object(value, depth);
      case '[':
        return read_array(value, depth);
      case '"':
        value = std::string();
        return read_string(value.get_ref<std::string&>());
      case 't':
        value = true;
        return take("true");
      case 'f':
        value = false;
        return take("false");
      case 'n':
        value = nullptr;
        return take("null");
      default:
        return read_number(value);
    }
  }
  bool is_at_end() const { return at_ == end_; }

 private:
  bool take(char c) {
    if (at_ == end_ || *at_ != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!std::string_view(at_, end_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }
  /// At least one.
  bool take_digits() {
    const char* const begin = at_;
    while (at_ != end_ && *at_ >= '0' && *at_ <= '9') ++at_;
    return at_ != begin;
  }

  bool read_object(Json& value, int depth) {
    value = Json::object();
    auto& members = value.get_ref<Json::object_t&>();
    take('{');
    if (take('}')) return true;
    do {
      std::string name;
      if (!read_string(name) || !take(':') || !read(members[std::move(name)], depth + 1)) return false;
    } while (take(','));
    return take('}');
  }

  bool read_array(Json& value, int depth) {
    value = Json::array();
    auto& elements = value.get_ref<Json::array_t&>();
    take('[');
    if (take(']')) return true;
    do {
      if (!read(elements.emplace_back(), depth + 1)) return false;
    } while (take(','));
    return take(']');
  }

  bool read_string(std::string& text) {
    if (!take('"')) return false;
    const char* const begin = at_;
    while (at_ != end_ && *at_ >= ' ' && *at_ < '\x7F' && *at_ != '"' && *at_ != '\\') ++at_;
    text.assign(begin, at_);
    return take('"');
  }

  /// The types are the library's: unsigned, signed where it is negative, else double.
  bool read_number(Json& value) {
    const char* const begin = at_;
    const bool is_negative = take('-');
    if (!take('0') && !take_digits()) return false;  // "01" is none, and its 1 is not what follows a value
    bool is_integer = true;
    if (take('.')) {
      is_integer = false;
      if (!take_digits()) return false;
    }
    if (take('e') || take('E')) {
      is_integer = false;
      if (!take('-')) take('+');
      if (!take_digits()) return false;
    }
    if (!is_integer) return convert<double>(begin, value);
    return is_negative ? convert<std::int64_t>(begin, value) : convert<std::uint64_t>(begin, value);
  }

  /// The number from `begin` to here; false where it is out of range.
  template <class Number>
  bool convert(const char* begin, Json& value) {
    Number number{};
    if (std::from_chars(begin, at_, number).ec != std::errc()) return false;
    value = number;
    return true;
  }

  const char* at_;
  const char* end_;
};

}  // namespace

std::optional<nlohmann::json> parse_plain_json(std::string_view text) {
  PlainReader reader(text);
  std::optional<Json> value(std::in_place);
  if (!reader.read(*value, 0) || !reader.is_at_end()) value.reset();
  return value;
}

}  // namespace ssmbench
