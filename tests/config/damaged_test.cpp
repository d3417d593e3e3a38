// Damaged copies of the shipped configs: cases, or one line of complaint, and never anything else.

#include <filesystem>
#include <random>
#include <string>

#include "base/errors.h"
#include "catch.h"
#include "config/config.h"
#include "support/temporary_folder.h"

using namespace ssmbench;
using namespace ssmbench::test;

namespace {

/// What loading says about the file; empty when it has cases.
std::string complaint_about(const std::filesystem::path& path) {
  try {
    load_config(path, {}, true);
  } catch (const UsageError& error) {
    const std::string message = error.what();
    CHECK(message.starts_with(path.string() + ": "));
    CHECK(message.find('\n') == message.npos);
    return message;
  }
  return "";
}

std::vector<std::filesystem::path> files_in(const std::string& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(SSMBENCH_SOURCE_DIR + folder))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  return files;
}

}  // namespace

TEST_CASE("configs cut at every sixteenth of their length are rejected in one line") {
  const TemporaryFolder folder;
  for (const auto& config : files_in("/configs")) {
    const std::string text = read_file(config);
    for (std::size_t part = 0; part < 16; ++part) {
      CAPTURE(config, part);
      const auto cut = std::string_view(text).substr(0, text.size() * part / 16);
      CHECK(complaint_about(folder.write("cut.json", cut)).find("not JSON") != std::string::npos);
    }
  }
}

TEST_CASE("configs with flipped bytes have cases or are rejected in one line") {
  const TemporaryFolder folder;
  std::mt19937 random(20261122);  // NOLINT(cert-msc51-cpp): the same flips each time
  int rejected = 0;
  for (const auto& config : files_in("/configs")) {
    for (int copy = 0; copy < 16; ++copy) {
      std::string text = read_file(config);
      for (int flip = 0; flip <= copy / 8; ++flip)
        text[random() % text.size()] ^= static_cast<char>(1 + random() % 255);
      CAPTURE(config, copy);
      rejected += complaint_about(folder.write("flipped.json", text)).empty() ? 0 : 1;
    }
  }
  CHECK(rejected > 0);
}

TEST_CASE("configs that fuzzing started from or found have cases or are rejected in one line") {
  for (const auto& config : files_in("/tests/golden/fuzz/json")) complaint_about(config);
}
