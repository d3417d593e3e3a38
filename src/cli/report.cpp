#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "cli/exit_code.h"
#include "cli/subcommands.h"
#include "html/page.h"
#include "record/line_file.h"

namespace ssmbench {
namespace {

struct ReportOptions {
  std::vector<std::string> files;
  std::string output;
};

int write_report(const ReportOptions& options) {
  std::vector<NamedResults> files;
  for (const auto& file : options.files)
    files.push_back({std::filesystem::path(file).filename().string(), read_results(file)});
  const bool is_empty = std::ranges::all_of(files, [](const NamedResults& file) {
    return file.results.cases.empty() && file.results.convergence.empty() && file.results.consistency.empty();
  });
  if (is_empty) {
    fmt::print(stderr, "ssmbench: no results in {}\n", options.files.front());
    return kNothingMatched;
  }
  LineFile(options.output).append(report_page(files));
  return kOk;
}

}  // namespace

void add_report(Program& program) {
  Command& command = program.add("report", "Write a self-contained HTML report of results files.",
                                 "ssmbench report results/*.jsonl -o report.html");
  auto options = std::make_shared<ReportOptions>();
  command.positionals("RESULTS", options->files,
                      "Results files of run; with several, each is compared with the first");
  command.required_option("-o,--output", "FILE", options->output, "HTML file to write (- for stdout)");
  command.runs([options] { return write_report(*options); });
}

}  // namespace ssmbench
