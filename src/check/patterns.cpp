#include "check/patterns.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "check/named_rows.h"

namespace ssmbench {
namespace {

/// Chunks that kernels commonly work in, largest first.
constexpr std::int64_t kChunks[]{256, 128, 64, 32, 16};

/// Which indices of one axis have a wrong element.
struct AxisErrors {
  char letter;
  std::vector<bool> wrong;

  std::int64_t extent() const { return static_cast<std::int64_t>(wrong.size()); }
  std::int64_t count() const { return std::ranges::count(wrong, true); }
  std::int64_t first() const { return std::ranges::find(wrong, true) - wrong.begin(); }
  std::int64_t last() const {
    return extent() - 1 - (std::find(wrong.rbegin(), wrong.rend(), true) - wrong.rbegin());
  }
  bool everywhere() const { return count() == extent(); }
  bool one_run() const { return last() - first() + 1 == count(); }

  /// "l 64", "l 64 to 127", "3 of 8 d".
  std::string text() const {
    if (count() == 1) return fmt::format("{} {}", letter, first());
    if (one_run()) return fmt::format("{} {} to {}", letter, first(), last());
    return fmt::format("{} of {} {}", count(), extent(), letter);
  }
};

AxisErrors errors_along(const JudgedOutput& output, std::size_t axis) {
  AxisErrors errors{output.axes[axis], std::vector<bool>(output.shape[axis])};
  const std::int64_t inner = std::accumulate(output.shape.begin() + static_cast<std::ptrdiff_t>(axis) + 1,
                                             output.shape.end(), std::int64_t{1}, std::multiplies<>());
  for (std::size_t i = 0; i < output.elements.size(); ++i)
    if (!output.elements[i].passed())
      errors.wrong[static_cast<std::int64_t>(i) / inner % errors.extent()] = true;
  return errors;
}

/// What wrong time steps suggest; empty when nothing in particular.
std::string about_time(const AxisErrors& time) {
  const std::int64_t first = time.first();
  const std::int64_t last = time.last();
  // Early in a chunk errors may still be under the tolerance, so that the first step decides and not every
  // one.
  const bool to_the_end = last + 1 == time.extent();
  for (const std::int64_t chunk : kChunks) {
    const std::int64_t tail = time.extent() / chunk * chunk;
    if (to_the_end && tail > 0 && first == tail)
      return fmt::format("only after the last whole chunk of {}: is the tail masked?", chunk);
    if (first / chunk == last / chunk && first % chunk == 0 && time.count() > 1 && time.extent() > chunk)
      return fmt::format("one chunk of {}", chunk);
    if (first > 0 && first % chunk == 0 && last / chunk > first / chunk)
      return fmt::format("from a multiple of {} on: is the state carried from chunk to chunk?", chunk);
  }
  return "";
}

/// Wrong channels or heads that are whole groups.
std::string about_groups(const AxisErrors& channels, std::int64_t groups) {
  const std::int64_t size = channels.extent() / groups;
  std::vector<std::int64_t> wrong;
  for (std::int64_t group = 0; group < groups; ++group)
    if (std::count(channels.wrong.begin() + group * size, channels.wrong.begin() + (group + 1) * size, true) >
        0)
      wrong.push_back(group);
  return std::ssize(wrong) == 1 ? fmt::format("group {} of {}", wrong.front(), groups) : "";
}

/// Whether every element passes as the one `shift` steps later.
bool passes_shifted(const JudgedOutput& output, const Expectation& expected, const Arithmetic& arithmetic,
                    std::int64_t shift) {
  const std::size_t time = *output.axis(kTimeLetter);
  const std::int64_t steps = output.shape[time];
  const std::int64_t inner = std::accumulate(output.shape.begin() + static_cast<std::ptrdiff_t>(time) + 1,
                                             output.shape.end(), std::int64_t{1}, std::multiplies<>());
  for (std::int64_t i = 0; i < std::ssize(output.got); ++i) {
    const std::int64_t step = i / inner % steps + shift;
    if (step < 0 || step >= steps) continue;
    const std::int64_t there = i + shift * inner;
    if (!judge_element(output.got[i], expected.at(there), output.dtype, arithmetic).passed()) return false;
  }
  return steps > 1;
}

}  // namespace

std::vector<std::string> patterns_of(const JudgedOutput& output, const Expectation& expected,
                                     const CaseRead& read) {
  const auto bad =
      std::ranges::count_if(output.elements, [](const auto& element) { return !element.passed(); });
  if (bad == 0) return {};
  if (output.axis(kTimeLetter))
    for (const std::int64_t shift : {-1, 1})
      if (passes_shifted(output, expected, read.arithmetic, shift))
        return {fmt::format("every step holds what belongs to the step {}", shift < 0 ? "before" : "after")};
  if (bad == 1) return {"one element"};

  std::vector<std::string> patterns;
  const std::int64_t groups = read.problem.groups();
  const AxisSpec* channel = read.problem.find_axis(AxisRole::channel);
  for (std::size_t axis = 0; axis < output.axes.size(); ++axis) {
    const AxisErrors errors = errors_along(output, axis);
    if (errors.everywhere()) continue;
    std::string note = common_to_rows(errors.letter, errors.wrong, read.inputs);
    if (errors.letter == kTimeLetter && note.empty()) note = about_time(errors);
    if (channel != nullptr && errors.letter == channel->letter && groups > 1)
      note = about_groups(errors, groups);
    patterns.push_back(note.empty() ? "only " + errors.text()
                                    : fmt::format("only {}, {}", errors.text(), note));
  }
  return patterns;
}

}  // namespace ssmbench
