#include "bench/ceilings_cache.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/errors.h"
#include "base/json_text.h"

namespace ssmbench {
namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;

/// Changes with what is measured and how, so that what an earlier version measured does not count.
constexpr const char* kFormat = "ssmbench-ceilings/2";

Ceilings ceilings_of(const OrderedJson& object) {
  Ceilings ceilings;
  for (const auto& field : kCeilingFields) {
    const auto value = object.at(field.name).get<double>();
    if (!std::isfinite(value) || value < 0) throw UsageError(fmt::format("{} is {}", field.name, value));
    ceilings.*field.member = value;
  }
  return ceilings;
}

}  // namespace

OrderedJson json_of(const CeilingsByKey& ceilings) {
  OrderedJson json = OrderedJson::object();
  for (const auto& [key, values] : ceilings)
    for (const auto& field : kCeilingFields) json[key][field.name] = values.*field.member;
  return json;
}

CeilingsByKey ceilings_in(const OrderedJson& json) {
  CeilingsByKey all;
  for (const auto& [key, object] : json.items()) all[key] = ceilings_of(object);
  return all;
}

Ceilings larger(const Ceilings& a, const Ceilings& b) {
  Ceilings both;
  for (const auto& field : kCeilingFields) both.*field.member = std::max(a.*field.member, b.*field.member);
  return both;
}

fs::path ceilings_file() {
  const auto folder = [](const char* variable) -> fs::path {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
  };
  if (const fs::path cache = folder("XDG_CACHE_HOME"); cache.is_absolute())
    return cache / "ssmbench" / "ceilings.json";
  if (const fs::path home = folder("HOME"); home.is_absolute())
    return home / ".cache" / "ssmbench" / "ceilings.json";
  return {};
}

CeilingsByKey read_ceilings(const fs::path& file, std::string& warning) {
  std::ifstream stream(file, std::ios::binary);
  if (!stream) return {};
  try {
    const OrderedJson json = OrderedJson::parse(stream);
    if (const auto format = json.at("format").get<std::string>(); format != kFormat)
      throw UsageError(fmt::format("format {}; expected {}", format, kFormat));
    return ceilings_in(json.at("devices"));
  } catch (const std::exception& error) {
    warning = fmt::format("{}: ignored: {:.200}", file.string(), json_error_text(error.what()));
    return {};
  }
}

void write_ceilings(const fs::path& file, const CeilingsByKey& ceilings) {
  if (file.empty()) throw OutputError("ceilings cannot be kept: neither XDG_CACHE_HOME nor HOME is set");
  const OrderedJson json{{"format", kFormat}, {"devices", json_of(ceilings)}};

  std::error_code error;
  fs::create_directories(file.parent_path(), error);
  // Beside it and then in its place, so that nobody ever reads half of it.
  const fs::path part = file.string() + fmt::format(".{}", getpid());
  std::ofstream stream(part, std::ios::binary);
  stream << json.dump(2) << '\n';
  stream.close();
  if (stream) fs::rename(part, file, error);
  if (!stream || error) {
    std::error_code ignored;
    fs::remove(part, ignored);
    throw OutputError(fmt::format("{}: cannot be written", file.string()));
  }
}

}  // namespace ssmbench
