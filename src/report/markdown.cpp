#include "report/markdown.h"

#include <fmt/format.h>

#include "report/labels.h"
#include "report/text.h"

namespace ssmbench {

void MarkdownReporter::begin(const RunInfo& info) {
  for (const auto& [id, details] : info.devices) file_->append(fmt::format("{}: {}", id, details.at("name")));
  has_device_times_ = has_device_times(info);
  has_roofline_ = has_roofline(info);
}

void MarkdownReporter::case_done(const CaseResult& result) {
  const Problem& problem = result.the_case.problem;
  const std::string heading = shape_heading(problem);
  const auto more_times = has_device_times_ ? device_times(result) : decltype(device_times(result))();
  if (heading != heading_) {
    std::string names, rulers;
    for (const auto& [name, _] : more_times) {
      names += fmt::format(" {} |", name);
      rulers += " ---: |";
    }
    file_->append(fmt::format(
        "\n| status | implementation | dtype | {} | hot ms |{} GB/s |{} rel. L2 | err/tol | options |",
        heading, names, has_roofline_ ? " % of peak |" : ""));
    file_->append(fmt::format("| --- | --- | --- | --- | ---: |{} ---: |{} ---: | ---: | --- |", rulers,
                              has_roofline_ ? " ---: |" : ""));
    heading_ = heading;
  }
  const TimingStats* timing = result.headline();
  const OutputComparison* worst = worst_output(result);
  std::string times = timing != nullptr ? fmt::format("{:.4f} |", timing->median_ms) : " |";
  for (const auto& [_, ms] : more_times) times += ms ? fmt::format(" {:.4f} |", *ms) : "  |";
  std::string remarks = result.reason.empty() ? options_label(result.the_case) : markdown_cell(result.reason);
  if (const auto budget = budget_label(result); !budget.empty()) remarks += "; " + budget;
  const std::string roofline = has_roofline_ ? fmt::format(" {} |", roofline_label(result)) : "";
  file_->append(fmt::format("| {} | {} | {} | {} | {} {} |{} {} | {} | {} |", status_label(result),
                            result.impl, problem.choice("dtype"), shape_label(problem), times,
                            timing != nullptr ? fmt::format("{:.1f}", gigabytes_per_second(result)) : "",
                            roofline, worst != nullptr ? fmt::format("{:.2e}", worst->rel_l2) : "",
                            worst != nullptr ? fmt::format("{:.3f}", worst->tolerance_ratio) : "", remarks));
}

void MarkdownReporter::finish(const Summary& summary) {
  file_->append(fmt::format("\n{}", summary_line(summary)));
}

}  // namespace ssmbench
