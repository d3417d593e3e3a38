#include "config/document.h"

#include <fmt/format.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <set>
#include <system_error>

#include "base/errors.h"
#include "base/json_text.h"

namespace ssmbench {
namespace {

/// The format needs 7; the limit keeps hostile files from exhausting the stack of recursive code.
constexpr int kMaxDepth = 32;

/// JSON text of `value`; bytes that are not UTF-8 (from the command line) are replaced.
std::string dump(const Json& value) {
  return value.dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// Follows a parser through a document and objects to what the parser lets pass.
class Watcher {
 public:
  explicit Watcher(std::string file) : file_(std::move(file)) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_end || event == Event::array_end) {
      containers_.pop_back();
      return true;
    }
    if (event == Event::key) {
      enter_key(parsed.get<std::string>());
      return true;
    }
    if (!containers_.empty() && containers_.back().is_array)
      containers_.back().token = std::to_string(containers_.back().next_index++);
    if (event == Event::value) return true;
    if (depth >= kMaxDepth)
      fail({file_, to_pointer(path())}, "nested too deeply", "a config, at most a few levels deep");
    containers_.push_back({event == Event::array_start, {}, 0, {}});
    return true;
  }

 private:
  struct Container {
    bool is_array;
    std::string token;  ///< key or index of the member that is being read
    std::size_t next_index;
    std::set<std::string> keys;
  };

  void enter_key(std::string key) {
    Container& object = containers_.back();
    if (!object.keys.insert(key).second) {
      JsonPath place = path();
      place.pop_back();
      fail({file_, to_pointer(place)}, fmt::format("the key {} is there twice", shown(key)), "each key once");
    }
    object.token = std::move(key);
  }

  JsonPath path() const {
    JsonPath tokens;
    for (const auto& container : containers_) tokens.push_back(container.token);
    return tokens;
  }

  std::string file_;
  std::vector<Container> containers_;
};

std::string read_text(const std::filesystem::path& file) {
  const auto unreadable = [&](const std::string& reason) {
    return UsageError(fmt::format("{}: cannot be read ({}); expected a config file", file.string(), reason));
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) throw unreadable("it is a directory");
  errno = 0;
  std::ifstream in(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (!in || in.bad()) throw unreadable(std::generic_category().message(errno));
  return text;
}

}  // namespace

std::string to_pointer(const JsonPath& path) {
  if (path.empty()) return "/";
  Json::json_pointer pointer;
  for (const auto& token : path) pointer.push_back(token);
  const std::string escaped = dump(pointer.to_string());
  return escaped.substr(1, escaped.size() - 2);
}

std::string shown(const Json& value) {
  constexpr std::size_t kLimit = 60;
  std::string text = dump(value);
  if (text.size() > kLimit) text = text.substr(0, kLimit - 3) + "...";
  return text;
}

void fail(const Source& place, std::string_view what, std::string_view expected) {
  throw UsageError(fmt::format("{}: {}: {}; expected {}", place.file, place.pointer, what, expected));
}

Json read_document(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  try {
    return Json::parse(text, Watcher(file.string()));
  } catch (const Json::exception& error) {
    throw UsageError(fmt::format("{}: not JSON ({:.200}); expected a config in JSON", file.string(),
                                 json_error_text(error.what())));
  }
}

}  // namespace ssmbench
