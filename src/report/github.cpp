#include "report/github.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>

namespace ssmbench {
namespace {

/// Rows have up to some 200 bytes.
constexpr std::size_t kRows = 2500;
constexpr std::size_t kRowsOfFailures = 3500;

bool is_failure(Status status) {
  return status == Status::fail || status == Status::error || status == Status::invalid;
}

/// What a workflow command takes for itself, as its runner decodes it.
std::string escaped(std::string_view text, std::string_view special) {
  std::string result;
  for (const char c : text)
    result += special.find(c) == std::string_view::npos
                  ? std::string(1, c)
                  : fmt::format("%{:02X}", static_cast<unsigned char>(c));
  return result;
}

}  // namespace

bool in_github_actions() {
  const char* value = std::getenv("GITHUB_ACTIONS");
  return value != nullptr && std::string_view(value) == "true";
}

std::string error_annotation(std::string_view title, std::string_view message) {
  return fmt::format("::error title={}::{}", escaped(title, "%\r\n:,"), escaped(message, "%\r\n"));
}

void annotate_error(std::string_view title, std::string_view message) {
  fmt::print(stderr, "{}\n", error_annotation(title, message));
}

std::unique_ptr<LineFile> open_step_summary() {
  const char* name = std::getenv("GITHUB_STEP_SUMMARY");
  if (name == nullptr || *name == '\0') return nullptr;
  std::error_code error;
  if (!std::filesystem::is_regular_file(name, error)) return std::make_unique<LineFile>(name);
  return std::make_unique<LineFile>(name, std::filesystem::file_size(name));
}

GithubReporter::GithubReporter() {
  auto file = open_step_summary();
  if (file == nullptr) return;
  summary_ = file.get();
  table_.emplace(std::move(file));
}

void GithubReporter::begin(const RunInfo& info) {
  if (table_) table_->begin(info);
}

void GithubReporter::case_done(const CaseResult& result) {
  const bool failure = is_failure(result.status);
  if (failure)
    annotate_error(fmt::format("{}: {}{}", result.impl, name_of(result.status),
                               result.cause ? fmt::format(" ({})", name_of(*result.cause)) : ""),
                   fmt::format("{}: {}\n{}", result.the_case.id(), result.reason, result.repro));
  if (!table_) return;
  if (rows_ >= (failure ? kRowsOfFailures : kRows)) {
    ++left_out_;
    return;
  }
  ++rows_;
  table_->case_done(result);
}

void GithubReporter::finish(const Summary& summary) {
  if (!table_) return;
  if (left_out_ > 0) summary_->append(fmt::format("\n{} more cases are not in this table.", left_out_));
  table_->finish(summary);
}

}  // namespace ssmbench
