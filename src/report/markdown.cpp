#include "report/markdown.h"

#include <fmt/format.h>

#include "report/labels.h"
#include "report/text.h"

namespace ssmbench {

void MarkdownReporter::begin(const RunInfo& info) {
  for (const auto& [id, details] : info.devices) file_->append(fmt::format("{}: {}", id, details.at("name")));
}

void MarkdownReporter::case_done(const CaseResult& result) {
  const Problem& problem = result.the_case.problem;
  const std::string heading = shape_heading(problem);
  if (heading != heading_) {
    file_->append(
        fmt::format("\n| {} | implementation | dtype | {} | median ms | GB/s | rel. L2 | err/tol | options |",
                    "status", heading));
    file_->append("| --- | --- | --- | --- | ---: | ---: | ---: | ---: | --- |");
    heading_ = heading;
  }
  const TimingStats* timing = result.headline();
  const OutputComparison* worst = worst_output(result);
  file_->append(
      fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} |", name_of(result.status), result.impl,
                  problem.choice("dtype"), shape_label(problem),
                  timing != nullptr ? fmt::format("{:.4f}", timing->median_ms) : "",
                  timing != nullptr ? fmt::format("{:.1f}", gigabytes_per_second(result)) : "",
                  worst != nullptr ? fmt::format("{:.2e}", worst->rel_l2) : "",
                  worst != nullptr ? fmt::format("{:.3f}", worst->tolerance_ratio) : "",
                  result.reason.empty() ? options_label(result.the_case) : markdown_cell(result.reason)));
}

void MarkdownReporter::finish(const Summary& summary) {
  file_->append(fmt::format("\n{}", summary_line(summary)));
}

}  // namespace ssmbench
