#include "report/junit.h"

#include <fmt/format.h>

#include <algorithm>

#include "report/labels.h"
#include "report/text.h"

namespace ssmbench {
namespace {

using Outcome = JunitCase::Outcome;

Outcome outcome_of(Status status) {
  switch (status) {
    case Status::pass:
      return Outcome::passed;
    case Status::skip:
    case Status::unverified:
      return Outcome::skipped;
    case Status::error:
      return Outcome::error;
    case Status::fail:
    case Status::invalid:
      break;
  }
  return Outcome::failure;
}

std::string element(const JunitCase& test) {
  std::string text =
      fmt::format(R"(    <testcase classname="{}" name="{}" time="{:.9f}">)",
                  xml_text(test.suite + "." + test.class_name), xml_text(test.name), test.seconds);
  const std::string message = xml_text(test.message);
  const std::string type = xml_text(test.type);
  if (test.outcome == Outcome::skipped)
    text += fmt::format(R"(<skipped type="{}" message="{}"/>)", type, message);
  if (test.outcome == Outcome::failure || test.outcome == Outcome::error) {
    const char* tag = test.outcome == Outcome::failure ? "failure" : "error";
    text += fmt::format(R"(<{0} type="{1}" message="{2}">{2}</{0}>)", tag, type, message);
  }
  if (!test.output.empty()) text += fmt::format("<system-out>{}</system-out>", xml_text(test.output));
  return text + "</testcase>\n";
}

/// The attributes that tools count by.
std::string counts(const std::vector<JunitCase>& cases, const std::string* suite) {
  int tests = 0;
  int failures = 0;
  int errors = 0;
  int skipped = 0;
  double seconds = 0;
  for (const auto& test : cases) {
    if (suite != nullptr && test.suite != *suite) continue;
    ++tests;
    failures += test.outcome == Outcome::failure ? 1 : 0;
    errors += test.outcome == Outcome::error ? 1 : 0;
    skipped += test.outcome == Outcome::skipped ? 1 : 0;
    seconds += test.seconds;
  }
  const std::string of_suite = suite != nullptr ? fmt::format(" skipped=\"{}\"", skipped) : "";
  return fmt::format(R"(tests="{}" failures="{}" errors="{}"{} time="{:.9f}")", tests, failures, errors,
                     of_suite, seconds);
}

}  // namespace

std::string junit_document(const std::vector<JunitCase>& cases) {
  std::vector<std::string> suites;
  for (const auto& test : cases)
    if (std::ranges::find(suites, test.suite) == suites.end()) suites.push_back(test.suite);
  std::string text =
      fmt::format("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites name=\"ssmbench\" {}>\n",
                  counts(cases, nullptr));
  for (const auto& suite : suites) {
    text += fmt::format("  <testsuite name=\"{}\" {}>\n", xml_text(suite), counts(cases, &suite));
    for (const auto& test : cases)
      if (test.suite == suite) text += element(test);
    text += "  </testsuite>\n";
  }
  return text + "</testsuites>";
}

void JunitReporter::case_done(const CaseResult& result) {
  const TimingStats* timing = result.headline();
  cases_.push_back(
      {.suite = std::string(result.the_case.problem.op().name),
       .class_name = fmt::format("{} on {}", result.impl, result.device),
       .name = result.the_case.id(),
       .outcome = outcome_of(result.status),
       .type = std::string(result.cause ? name_of(*result.cause) : name_of(result.status)),
       .message = result.reason.empty() && result.status != Status::pass ? std::string(name_of(result.status))
                                                                         : result.reason,
       .output = result.claims ? fmt::format("math {}, state_dtype {}\n{}", name_of(result.claims->math),
                                             name_of(result.claims->state_dtype), result.repro)
                               : result.repro,
       .seconds = timing != nullptr ? timing->median_ms / 1000 : 0});
}

void JunitReporter::finish(const Summary& summary) {
  if (summary.interrupted)
    cases_.push_back({.suite = "ssmbench",
                      .class_name = "run",
                      .name = "every case ran",
                      .outcome = Outcome::error,
                      .type = "interrupted",
                      .message = summary_line(summary)});
  file_.append(junit_document(cases_));
}

}  // namespace ssmbench
